"""Positions of which only differences matter."""

from typing import NamedTuple

import torch
from torch import Tensor

from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.tokens import Tokens


class Turns(NamedTuple):
    """The cosines of one forward, (b, 1, t, 1, head_dim / 2), and its sines with the sign that each half of channels
    takes, (b, 1, t, 2, head_dim / 2)."""

    query: Tokens
    of_query: tuple[Tensor, Tensor]
    of_key: tuple[Tensor, Tensor]

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        cos, sin = self.of_query if tokens.slot is self.query.slot else self.of_key
        pair = x.view(*x.shape[:-1], 2, -1)  # (b, h, t, head_dim) -> (b, h, t, 2, head_dim / 2)
        # (a, b) cos + (b, a) (-sin, sin): two passes over x, where a formula for each half takes eight over halves.
        turned = (pair * cos.to(x.dtype)).addcmul_(pair.flip(-2), sin.to(x.dtype))
        return turned.flatten(-2)


@POSITIONS.register("rotary", also_called=("rope",))
class Rotary(Position):
    """Turn pair i of a head's channels by position * theta^(-2i / head_dim), in queries and keys alike, so that scores
    depend on distances only (Su et al., 2021, arXiv:2104.09864, eq. 34).
    """

    # Paper: pairs (0, 1), (2, 3), ...   Here: pairs (i, i + head_dim / 2), as in GPT-NeoX and Llama.
    # The two differ by a fixed permutation of channels, which the query and key projections absorb.

    tables = Turns

    def __init__(
        self,
        head_dim: int,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
    ):
        super().__init__()
        self.head_dim, self.theta = head_dim, theta

    @classmethod
    def check(cls, options, context):
        if options.theta <= 0:
            yield f"theta: must be above 0 tokens; got {options.theta}."

    @classmethod
    def cannot(cls, context):
        head_dim = context.facts["attn"]["head_dim"]
        if head_dim % 2:
            return f"rotary turns pairs of channels, so attn.head_dim must be even; got {head_dim}"

    def begin(self, query: Tokens, key: Tokens) -> Turns:
        table = self._table(query.position)
        return Turns(query, table, table if key.position is query.position else self._table(key.position))

    def _table(self, position: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.head_dim, 2, device=position.device, dtype=torch.float32) / self.head_dim
        angle = position[:, None, :, None, None].float() * self.theta**-half  # (b, t) -> (b, 1, t, 1, head_dim / 2)
        sin = angle.sin()
        return angle.cos(), torch.cat([-sin, sin], -2)


@POSITIONS.register("alibi")
class Alibi(Position):
    """Lower a score by slope * distance, one slope per head: 2^(-8 i / heads) (Press et al., 2021, arXiv:2108.12409,
    section 3). For a number of heads that is no power of two p, the slopes of p heads and every other one of 2 p, as
    in the authors' code.
    """

    slope: Tensor

    def __init__(self, heads: int):
        super().__init__()
        p = 2 ** (heads.bit_length() - 1)
        slopes = [2 ** (-8 * (i + 1) / p) for i in range(p)]
        slopes += [2 ** (-4 * (i + 1) / p) for i in range(0, 2 * (heads - p), 2)]
        self.register_buffer("slope", torch.tensor(slopes), persistent=False)  # (heads,)

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        return -self.slope[head] * (query.position - key.position).abs()
