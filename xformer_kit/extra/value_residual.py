"""Values of the first attention in those of later layers."""

from typing import Literal

import torch
from torch import nn

from xformer_kit.extra.base import EXTRAS, Extra, first_calls
from xformer_kit.registry import Fault

Mix = Literal["fixed", "learned", "token"]


class MixedValues(Extra):
    """Values of one layer; the first layer of each shape (kv_heads, v_head_dim) leaves its own."""

    def __init__(self, mix: Mix | None, dim: int, kv_heads: int):
        super().__init__()
        self.gate = nn.Linear(dim, kv_heads) if mix == "token" else None
        # Tensors in the first layer too, so that all layers share one graph.
        factors = torch.full((2,), 0.5) if mix else torch.tensor([0.0, 1.0])
        if mix == "learned":
            self.factors = nn.Parameter(factors)
        else:
            self.register_buffer("factors", factors, persistent=False)

    def values(self, v, x, layer):
        first = layer.memo.setdefault(f"values {tuple(v.shape[1::2])}", v)
        if self.gate is not None:
            share = self.gate(x).sigmoid().mT[..., None]  # (b, t, kv) -> (b, kv, t, 1)
            return torch.lerp(first, v, share)
        return self.factors[0] * first + self.factors[1] * v


@EXTRAS.register("value_residual", also_called=("resformer", "value_residual_learning"))
class ValueResidual(Extra):
    """a v_1 + b v in place of the values v of each attention after the first, whose values are v_1:
    a = b = 1/2, or both learned from there (Zhou et al., 2024, arXiv:2410.17897), or b = 1 - a =
    sigmoid(x W + c) for each token and key head, with the attention's input x.

    v_1 is that of the first attention of the stack with as many key heads and channels.
    """

    layer_class = MixedValues
    variants = [{"mix": "fixed"}, {"mix": "learned"}, {"mix": "token"}]

    def __init__(
        self,
        dim: int,
        sublayers: dict[int, dict[str, str]],
        calls: tuple[int, ...],
        kv_heads: int,
        *,
        mix: Mix = "fixed",  # factors of the two: 1/2, learned numbers, or made from the token
    ):
        super().__init__()
        depths = [at for at in first_calls(calls) if "attn" in sublayers[at].values()]
        layers = {at: MixedValues(mix if at > depths[0] else None, dim, kv_heads) for at in depths}
        self.layers = nn.ModuleDict({str(at): layer for at, layer in layers.items()})

    @classmethod
    def cannot(cls, options, context):
        shapes = [
            [
                (sub.context.attn.kv_heads, sub.context.attn.v_head_dim)
                for _, block in stack.own_blocks
                for sub in block.sublayers
                if sub.kind == "attn" and not sub.cross
            ]
            for stack in context.stacks
        ]
        if all(len(set(found)) == len(found) for found in shapes):
            yield Fault(
                "",
                "mixes values of the first attention into those of later layers with as many key"
                " heads and channels and weights of their own, and there is none",
                fix="Try model.layers=2 model.unique_layers=null, or leave it out.",
            )
        elif options.mix == "token" and any(len(set(found)) > 1 for found in shapes):
            yield Fault(
                "mix",
                "'token' needs attentions with equally many key heads and channels in all layers",
                fix="Try learned.",
            )

    def of_layer(self, depth):
        return dict(self.layers.items()).get(str(depth))
