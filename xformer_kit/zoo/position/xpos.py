"""A rotation whose pairs of channels fall with the distance."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from xformer_kit.model.tokens import Tokens
from xformer_kit.position import POSITIONS, Rotary, Turns, unpaired
from xformer_kit.registry import above


class Growth(NamedTuple):
    """Turns, and what they are multiplied by, (b, 1, t, head_dim): queries by it, keys by its
    inverse.
    """

    turns: Turns
    of_query: Tensor
    of_key: Tensor

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.turns.rotate(x, tokens) * self._of(tokens).to(x.dtype)

    def rotate_key(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.turns.rotate(x, tokens) / self._of(tokens).to(x.dtype)

    def _of(self, tokens: Tokens) -> Tensor:
        return self.of_query if tokens.slot is self.turns.query.slot else self.of_key


@POSITIONS.register("xpos", also_called=("length_extrapolatable",))
class XPos(Rotary):
    """Rotary whose pair i falls with the distance back, by z_i^(distance / span) (Sun et al., 2022,
    arXiv:2212.10554, algorithm 1).

    Queries are multiplied by z_i^(position / span), keys by z_i^(-position / span), z_i = (2i /
    head_dim + gamma) / (1 + gamma): the farther back a key, the less of its fast pairs is seen.
    There is no longest text; keys behind a query, where a mask shows any, grow.
    """

    # Positions are counted from max_len / 2 in the powers, which leaves scores as they are and the
    # powers small.

    variants = [{"span": 8.0, "pairing": "interleaved"}]
    enters = ("rotate", "rotate_key")

    def __init__(
        self,
        head_dim: int,
        max_len: int,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
        pairing: Literal[
            "half", "interleaved"
        ] = "half",  # channel i with i + head_dim / 2, or 2i with 2i + 1
        span: float = 512.0,  # tokens over which pair i falls by z_i
        gamma: float = 0.4,  # how little the fastest pair falls: z_0 = gamma / (1 + gamma)
    ):
        super().__init__(head_dim, max_len, theta=theta, pairing=pairing)
        self.span = span
        self.gamma = gamma

    @classmethod
    def check(cls, options, context):
        yield from above(options, theta=0, span=0, gamma=0)

    @classmethod
    def cannot(cls, options, context):
        yield from unpaired(context)

    def begin(  # type: ignore[override]
        self, query: Tokens, key: Tokens, cached: int = 0
    ) -> Growth:
        grown = self._grown(query)
        of_key = grown if key.position is query.position else self._grown(key)
        return Growth(super().begin(query, key), grown, of_key)

    def _grown(self, tokens: Tokens) -> Tensor:
        share = (
            torch.arange(0, self.turned, 2, device=tokens.position.device, dtype=torch.float32)
            / self.turned
        )
        power = (tokens.position.float() - self.trained / 2)[:, None, :, None] / self.span
        grown = ((share + self.gamma) / (1 + self.gamma)) ** power  # (b, 1, t, head_dim / 2)
        return grown.repeat_interleave(2, -1) if self.interleaved else grown.repeat(1, 1, 1, 2)
