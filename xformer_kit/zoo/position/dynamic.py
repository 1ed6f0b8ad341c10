"""Positions as a small network of the distance."""

from contextlib import nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.tokens import Tokens
from xformer_kit.position import POSITIONS, Position, exact, plain, still
from xformer_kit.registry import at_least, at_most
from xformer_kit.zoo.position._network import of_heads


class Curve(NamedTuple):
    """The bias of each head (n, h) at the distances from `first` on, of one forward."""

    heights: Tensor
    first: int

    rotate = rotate_key = still  # type: ignore[misc]

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        return self.heights[query.position - key.position - self.first, head]


@POSITIONS.register(
    "dynamic", also_called=("dynamic_position_bias", "dpb", "log_cpb", "continuous_bias")
)
class Dynamic(Position):
    """A bias f(i - j) for each head, with a small network f of the distance.

    f has `hidden` layers, each linear with a norm, where there is one, and an activation behind it
    (CrossFormer: Wang et al., 2021, arXiv:2108.00154), or of sign(x) ln(1 + |x|) of the distance x
    (Swin v2: Liu et al., 2021, arXiv:2111.09883, eq. 3 and 4). There is no longest text.
    """

    # f ends without a bias: the same number on every score of a row changes no weight.

    variants = [{"hidden": 1, "norm": True, "activation": "relu", "per_layer": True}]
    learned = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        width: int | None = None,  # channels of a hidden layer; null is dim / 4
        hidden: int = 2,  # layers before the last, which is linear
        log: bool = True,  # whether f sees the logarithm of distances
        norm: bool = False,  # whether hidden layers have a LayerNorm, as in CrossFormer
        activation: Literal["silu", "relu"] = "silu",  # relu in both papers
        per_layer: bool = False,  # f for each layer, in place of one for the stack
    ):
        super().__init__()
        width = width or max(1, dim // 4)
        self.log = log
        self.act = F.silu if activation == "silu" else F.relu
        self.hidden = nn.ModuleList(nn.Linear(width if i else 1, width) for i in range(hidden))
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if norm else nn.Identity() for _ in range(hidden)
        )
        self.down = nn.Linear(width, heads, bias=False)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", width=1)
        yield from at_least(options, "layer", hidden=1)
        yield from at_most(options, "layers", hidden=100)

    def begin(self, query: Tokens, key: Tokens, cached: int = 0) -> "Curve | Dynamic":
        if cached or key is not query or not plain(query):
            return self
        first = 1 - query.length
        x = torch.arange(first, query.length, device=query.position.device)
        with (
            nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
        ):  # on meta there is none to leave
            return Curve(F.linear(self._hidden(x), exact(self.down.weight)), first)

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """f of each pair of tokens: of positions that are no slots only the device has the smallest
        and the largest distance.
        """
        return of_heads(self._hidden(query.position - key.position), self.down.weight, head)

    def _hidden(self, distance: Tensor) -> Tensor:
        """What the last layer reads, (...) -> (..., width)."""
        x = distance[..., None].to(exact(self.down.weight).dtype)
        x = x.sign() * x.abs().log1p() if self.log else x
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = F.linear(x, exact(layer.weight), exact(layer.bias))  # type: ignore[arg-type]
            if isinstance(norm, nn.LayerNorm):
                x = F.layer_norm(
                    x, norm.normalized_shape, exact(norm.weight), exact(norm.bias), norm.eps
                )
            x = self.act(x)
        return x
