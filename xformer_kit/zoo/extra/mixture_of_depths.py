"""Layers that run on the tokens that a router chooses."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.extra import EXTRAS, Chosen, Extra
from xformer_kit.registry import Fault, above, at_least, in_range
from xformer_kit.tensors import hidden
from xformer_kit.tensors.tokens import Tokens

ORDER_ONLY = (math.inf, math.inf), (math.inf, 0)  # bands of masks without distances


@EXTRAS.register("mixture_of_depths", also_called=("mod",))
class MixtureOfDepths(Extra):
    """x + r block_change(x) for the tokens that a layer chooses, and x for the others, with scores
    r = x w of its router, where block_change(x) is block(x) - x, computed among the chosen tokens
    only (Raposo et al., 2024, arXiv:2404.02258, eq. 1).

    In training the `capacity` x tokens of a row with the highest scores are chosen. This depends on
    later tokens, so that in evaluation and generation those with r > 0 are, which a loss trains the
    router to: the mean binary cross-entropy of sigmoid(r) and the choice (section 3.5), times
    `loss`. Then their number is read from the device.
    """

    breaks = {
        "causality in training": (
            "the tokens with the highest scores of a text are chosen, so that later tokens matter"
        ),
        "decoding cost": "a layer runs only on the tokens that it chooses",
    }
    adds_loss = True
    variants = [{"capacity": 0.5, "every": 1}]

    def __init__(
        self,
        dim: int,
        layers: int,
        block_index: tuple[int, ...],
        *,
        capacity: float = 0.125,  # share of the tokens of a row that are chosen in training
        every: int = 2,  # of so many layers, the last chooses
        loss: float = 0.01,  # factor of the router's loss
    ):
        super().__init__()
        self.capacity = capacity
        self.factor = loss
        self.depths = range(every - 1, layers, every)
        self.block_index = block_index
        blocks = dict.fromkeys(block_index[depth] for depth in self.depths)
        self.routers = nn.ModuleDict({str(block): nn.Linear(dim, 1, False) for block in blocks})
        self.parameter_info = {f"routers.{block}": hidden("1", "dim") for block in blocks}

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, capacity=(0, 1))
        yield from above(options, capacity=0)
        yield from at_least(options, every=1, loss=0)

    @classmethod
    def cannot(cls, options, context):
        for stack in context.stacks:
            if options.every > len(stack.blocks):
                rule, got = "must be at most the layers", f"{options.every} and {len(stack.blocks)}"
                yield Fault("every", rule, got=got, fix=f"Try {len(stack.blocks)}.")
                return
            for block in stack.blocks[options.every - 1 :: options.every]:
                if reason := _reason(block):
                    yield Fault("", f"its layers run on some of the tokens, and {reason}")
                    return

    def chooses(self, depth):
        return depth in self.depths

    def choose(self, state, layer):
        scores = self.routers[str(self.block_index[layer.depth])](state[0])[..., 0]
        chosen, is_chosen = self._chosen(scores, layer.tokens)
        target = is_chosen.to(scores.dtype)
        loss = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
        real = torch.ones_like(scores) if layer.tokens.real is None else layer.tokens.real
        real = real.expand_as(scores).to(scores.dtype)
        memory = {"loss": (loss * real).sum() / real.sum().clamp(min=1)}
        memory["chosen"] = (target * real).sum().detach()
        memory["tokens"] = real.sum()
        return chosen, {k: layer.memory.get(k, 0.0) + value for k, value in memory.items()}

    def _chosen(self, scores: Tensor, tokens: Tokens) -> tuple[Chosen, Tensor]:
        """The chosen tokens, and whether each is, (b, t)."""
        real = torch.ones_like(scores, dtype=torch.bool) if tokens.real is None else tokens.real
        real = real.expand_as(scores)
        if self.training:
            count = math.ceil(self.capacity * scores.shape[1])
            limit: int | Tensor = count
            if tokens.real is not None:  # in fp32, which may round to one more than count
                limit = (self.capacity * real.sum(-1, keepdim=True)).ceil().clamp(max=count)
            order = scores.detach().masked_fill(~real, -math.inf).argsort(-1, descending=True)
            rank = order.argsort(-1)
            is_chosen = (rank < limit) & real
        else:
            is_chosen = (scores > 0) & real
            most = is_chosen.sum(-1).amax()
            count = scores.shape[1] if scores.is_meta else int(most)
        # Chosen tokens come first, in their order.
        index = (~is_chosen).long().argsort(dim=-1, stable=True)[:, :count]
        same = self.training and tokens.real is None  # all rows have as many
        found = None if same else is_chosen.gather(1, index)
        return Chosen(index, found, scores.gather(1, index)), is_chosen

    def report(self, layer):
        if not self.training or not layer.memory:
            return {}
        chosen, tokens = layer.memory["chosen"], layer.memory["tokens"]
        return {"loss": self.factor * layer.memory["loss"], "chosen": chosen, "tokens": tokens}

    def figures(self, report):
        return {"share": float(report["chosen"] / report["tokens"].clamp(min=1))}


def _reason(block) -> str | None:
    """Why the layers of a block cannot run on some of the tokens."""
    for sub in block.sublayers:
        if sub.kind != "attn":
            continue
        name, traits = sub.component["name"], sub.context.attn
        if traits.computes != "scores":
            return f"attn '{name}' keeps a state of all of them. Use attn=multi_head."
        if traits.cross_layer or sub.component.get("keys") == "earlier":
            return f"attn '{name}' takes tensors of other layers, which have all of them."
        if not sub.cross and sub.context.mask.band not in ORDER_ONLY:
            mask = sub.context.names["mask"]
            return f"mask '{mask}' measures distances among all of them. Use mask=causal or full."
    return None
