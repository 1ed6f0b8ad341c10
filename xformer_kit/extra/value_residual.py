"""Value residual: values of the first attention are added to those of later layers."""

from typing import Literal

import torch
from torch import nn

from xformer_kit.extra.base import EXTRAS, Extra, first_layers
from xformer_kit.registry import Fault
from xformer_kit.tensors import hidden, vector

Mix = Literal["fixed", "learned", "token"]


class MixedValues(Extra):
    """Mixes the values of one layer with those of the first attention of the same shape (kv_heads,
    v_head_dim), which stores its own.

    mix is None for a layer whose only attention is the first one and is called once.
    """

    parameter_info = {"gate": hidden("kv_heads", "dim"), "factors": vector("2")}

    def __init__(self, mix: Mix | None, dim: int, kv_heads: int):
        super().__init__()
        self.gate = nn.Linear(dim, kv_heads) if mix == "token" else None
        factors = torch.full((2,), 0.5)
        self.factors = nn.Parameter(factors) if mix == "learned" else None
        self.register_buffer("fixed", factors if mix == "fixed" else None, persistent=False)

    def values(self, v, x, layer):
        name = f"values {tuple(v.shape[1::2])}"
        if name not in layer.cross_layer_state:
            layer.cross_layer_state[name] = v
            return v
        first = layer.cross_layer_state[name]
        if self.gate is not None:
            own_share = self.gate(x).sigmoid().mT[..., None]  # (b, t, kv) -> (b, kv, t, 1)
            return torch.lerp(first, v, own_share)
        a, b = self.fixed if self.factors is None else self.factors
        return a * first + b * v


@EXTRAS.register("value_residual", also_called=("resformer", "value_residual_learning"))
class ValueResidual(Extra):
    """Replaces the values v of each attention after the first by a v_1 + b v, where v_1 are the
    values of the first: a = b = 1/2, or both learned and 1/2 at the start (Zhou et al., 2024,
    arXiv:2410.17897), or b = 1 - a = sigmoid(x W + c) for each token and key head, with the
    attention's input x.

    v_1 is that of the first attention of the stack with the same number of key heads and channels.
    """

    layer_class = MixedValues
    variants = [{"mix": "fixed"}, {"mix": "learned"}, {"mix": "token"}]

    def __init__(
        self,
        dim: int,
        sublayers: dict[int, dict[str, str]],
        block_index: tuple[int, ...],
        kv_heads: int,
        *,
        mix: Mix = "fixed",  # factors of the two: 1/2, learned numbers, or made from the token
    ):
        super().__init__()
        attentions = {  # to the stack's own tokens
            depth: sum(
                kind == "attn" and not name.startswith("cross") for name, kind in found.items()
            )
            for depth, found in sublayers.items()
        }
        first, *later = (depth for depth in first_layers(block_index) if attentions[depth])
        once = block_index.count(block_index[first]) == 1 and attentions[first] == 1
        for depth in (first, *later):
            layer_mix = None if once and depth == first else mix
            self.layers[str(depth)] = MixedValues(layer_mix, dim, kv_heads)

    @classmethod
    def cannot(cls, options, context):
        shapes = [
            [
                (sub.context.attn.kv_heads, sub.context.attn.v_head_dim)
                for block in stack.blocks
                for sub in block.sublayers
                if sub.kind == "attn" and not sub.cross
            ]
            for stack in context.stacks
        ]
        if all(len(set(found)) == len(found) for found in shapes):
            yield Fault(
                "",
                "mixes values of the first attention into those of later ones with as many key"
                " heads and channels, and there is none",
                fix="Try model.layers=2, or leave it out.",
            )
        elif options.mix == "token" and any(len(set(found)) > 1 for found in shapes):
            yield Fault(
                "mix",
                "'token' needs attentions with equally many key heads and channels in all layers",
                fix="Try learned.",
            )
