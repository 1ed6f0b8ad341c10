"""A bias that a small network computes from the distance."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import no_autocast
from xformer_kit.position import (
    POSITIONS,
    Position,
    at_least_fp32,
    positions_are_slots,
    rotate_nothing,
)
from xformer_kit.registry import at_least, at_most
from xformer_kit.tensors import ParameterInfo, SubmoduleInfo, hidden
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.zoo.position._network import of_heads


class Curve(NamedTuple):
    """The bias of each head (n, h) at the distances `first`, `first` + 1, ..., of one forward."""

    values: Tensor
    first: int

    rotate = rotate_key = rotate_nothing  # type: ignore[misc]

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        return self.values[query.position - key.position - self.first, head]


@POSITIONS.register(
    "dynamic", also_called=("dynamic_position_bias", "dpb"), similar=("log_cpb", "continuous_bias")
)
class DynamicBias(Position):
    """Adds f(i - j) to each score, with a small network f of the distance that has one output per
    head.

    f has `hidden` layers, each linear, then an optional norm and an activation (CrossFormer: Wang
    et al., 2021, arXiv:2108.00154), or is a function of sign(x) ln(1 + |x|) of the distance x (Swin
    v2: Liu et al., 2021, arXiv:2111.09883, eq. 3 and 4). The length is unlimited.
    """

    # The last layer has no bias: the same number added to all scores of a row changes no weight.

    variants = [{"hidden": 1, "norm": True, "activation": "relu", "per_layer": True}]
    learned = True

    parameter_info = {
        "norms": SubmoduleInfo({"normalised": "width"}),
        "down": hidden("heads", "width"),
    }

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        width: int | None = None,  # channels of a hidden layer; null is dim / 4
        hidden: int = 2,  # layers before the last, which is linear
        log: bool = True,  # whether the input of f is the logarithm of the distance
        norm: bool = False,  # whether hidden layers have a LayerNorm, as in CrossFormer
        activation: Literal["silu", "relu"] = "silu",  # relu in both papers
        per_layer: bool = False,  # one f per layer, instead of one per stack
    ):
        super().__init__()
        width = width or max(1, dim // 4)
        self.log = log
        self.act = F.silu if activation == "silu" else F.relu
        self.hidden = nn.ModuleList(nn.Linear(width if i else 1, width) for i in range(hidden))
        self.parameter_info = {
            f"hidden.{at}": ParameterInfo("hidden", ("width", "width" if at else "1"))
            for at in range(hidden)
        }
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if norm else nn.Identity() for _ in range(hidden)
        )
        self.down = nn.Linear(width, heads, bias=False)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", width=1)
        yield from at_least(options, "layer", hidden=1)
        yield from at_most(options, "layers", hidden=100)

    def prepare(self, query: Tokens, key: Tokens, cached: int = 0) -> "Curve | DynamicBias":
        if cached or key is not query or not positions_are_slots(query):
            return self
        first = 1 - query.length
        x = torch.arange(first, query.length, device=query.position.device)
        with no_autocast(x):
            return Curve(F.linear(self._hidden(x), at_least_fp32(self.down.weight)), first)

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """Returns f of the distance of each pair of tokens, (b, h, q, k).

        `prepare` computes f once for each distance (`Curve`) if keys are the queries and positions
        are slots. Otherwise the smallest and the largest distance are known only on the device, and
        this is called.
        """
        return of_heads(self._hidden(query.position - key.position), self.down.weight, head)

    def _hidden(self, distance: Tensor) -> Tensor:
        """The input of the last layer, (...) -> (..., width)."""
        x = distance[..., None].to(at_least_fp32(self.down.weight).dtype)
        x = x.sign() * x.abs().log1p() if self.log else x
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            weight = at_least_fp32(layer.weight)  # type: ignore[arg-type]
            x = F.linear(x, weight, at_least_fp32(layer.bias))  # type: ignore[arg-type]
            if isinstance(norm, nn.LayerNorm):
                x = F.layer_norm(
                    x,
                    norm.normalized_shape,
                    at_least_fp32(norm.weight),
                    at_least_fp32(norm.bias),
                    norm.eps,
                )
            x = self.act(x)
        return x
