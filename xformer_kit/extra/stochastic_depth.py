"""Sublayers that are skipped at random in training."""

import torch

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.registry import Fault, in_range


@EXTRAS.register("stochastic_depth", also_called=("drop_path",))
class StochasticDepth(Extra):
    """In training, what a sublayer of layer l adds is dropped for a row with probability
    rate * l / layers, and divided by the probability of staying otherwise (Huang et al., 2016,
    arXiv:1603.09382, section 3).
    """

    variants = [{"rate": 0.3}]
    keep: torch.Tensor

    def __init__(
        self,
        layers: int,
        *,
        rate: float = 0.1,  # probability that a sublayer of the last layer is skipped for a row
    ):
        super().__init__()
        keep = 1 - rate * torch.arange(1, layers + 1) / layers
        self.register_buffer("keep", keep, persistent=False)  # (layers,)

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, rate=(0, 1))

    @classmethod
    def cannot(cls, options, context):
        blocks = (block for stack in context.stacks for block in stack.variants.values())
        placements = (block.nodes["placement"] for block in blocks)
        placement = next((p for p in placements if p.get("residual") is False), None)
        if placement is not None:
            yield Fault(
                "",
                f"placement '{placement['name']}' without residual does not add the stream to a"
                " sublayer, so a skipped sublayer returns zeros",
                fix="Choose placement.residual=true, or leave it out.",
            )

    def before_layer(self, state, layer):
        return state, {"keep": self.keep[layer.depth]}

    def sublayer_output(self, name, h, layer):
        if not self.training:
            return h
        keep = layer.memory["keep"].to(h.dtype)
        return h * torch.bernoulli(keep.expand(h.shape[0], 1, 1)) / keep  # (b, 1, 1): whole rows

    def extra_repr(self) -> str:
        return f"keep={[round(float(x), 4) for x in self.keep]}"
