"""Positions as a small network of the distance."""

from contextlib import nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position.base import POSITIONS, Position, still
from xformer_kit.position.relative import exact
from xformer_kit.registry import at_least, at_most
from xformer_kit.tokens import Tokens


class Curve(NamedTuple):
    """The bias of each head (n, h) at the distances from `first` on, of one forward."""

    heights: Tensor
    first: int

    rotate = rotate_key = still  # type: ignore[misc]

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        return self.heights[query.position - key.position - self.first, head]


@POSITIONS.register("dynamic", also_called=("dynamic_position_bias", "dpb", "log_cpb", "continuous_bias"))
class Dynamic(Position):
    """A bias f(i - j) for each head, with a small network f of the distance.

    f has `hidden` layers, each linear with a norm, where there is one, and an activation behind it (CrossFormer: Wang et
    al., 2021, arXiv:2108.00154), or of sign(x) ln(1 + |x|) of the distance x (Swin v2: Liu et al., 2021,
    arXiv:2111.09883, eq. 3 and 4). There is no longest text."""

    # f ends without a bias: the same number on every score of a row changes no weight.

    tables = Curve
    learned = whole = True

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
        per_layer: bool = False,  # f for each layer, in place of one for the tower
    ):
        super().__init__()
        width, self.log = width or max(1, dim // 4), log
        self.act = F.silu if activation == "silu" else F.relu
        self.hidden = nn.ModuleList(nn.Linear(width if i else 1, width) for i in range(hidden))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(hidden))
        self.down = nn.Linear(width, heads, bias=False)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", width=1)
        yield from at_least(options, "layer", hidden=1)
        yield from at_most(options, "layers", hidden=100)

    def begin(self, query: Tokens, key: Tokens) -> Curve:
        first, last = reach(query, key)
        x = torch.arange(first, last + 1, device=query.position.device)[:, None]
        x = x.to(exact(self.down.weight).dtype)
        with (
            nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
        ):  # on meta there is none to leave
            return Curve(self._heights(x.sign() * x.abs().log1p() if self.log else x), first)

    def _heights(self, x: Tensor) -> Tensor:
        """(n, 1) -> (n, heads)."""
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = F.linear(x, exact(layer.weight), exact(layer.bias))  # type: ignore[arg-type]
            if isinstance(norm, nn.LayerNorm):
                x = F.layer_norm(x, norm.normalized_shape, exact(norm.weight), exact(norm.bias), norm.eps)
            x = self.act(x)
        return F.linear(x, exact(self.down.weight))


def reach(query: Tokens, key: Tokens) -> tuple[int, int]:
    """The least and the largest distance. Where all tokens come at once and positions are slots, their number says it, without a
    wait for the device."""
    if key is query and query.position is query.slot:
        return 1 - query.length, query.length - 1
    far = query.position.amin(-1) - key.position.amax(-1), query.position.amax(-1) - key.position.amin(-1)
    return int(far[0].min()), int(far[1].max())
