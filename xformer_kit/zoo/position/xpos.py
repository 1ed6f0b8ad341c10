"""A rotary position whose pairs of channels decay with the distance."""

from typing import Literal, NamedTuple

from torch import Tensor

from xformer_kit.position import POSITIONS, Rotary, RotaryTables, odd_channel_fault
from xformer_kit.registry import above
from xformer_kit.tensors.tokens import Tokens


class XPosTables(NamedTuple):
    """Rotary tables and factors (b, 1, t, head_dim): queries are multiplied by the factors, keys
    divided by them.
    """

    rotary: RotaryTables
    of_query: Tensor
    of_key: Tensor

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.rotary.rotate(x, tokens) * self._of(tokens).to(x.dtype)

    def rotate_key(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.rotary.rotate(x, tokens) / self._of(tokens).to(x.dtype)

    def _of(self, tokens: Tokens) -> Tensor:
        return self.of_query if tokens.slot is self.rotary.query.slot else self.of_key


@POSITIONS.register("xpos", also_called=("length_extrapolatable",))
class XPos(Rotary):
    """Rotary position whose pair i decays with the distance, by z_i^(distance / span) (Sun et al.,
    2022, arXiv:2212.10554, algorithm 1).

    Queries are multiplied by z_i^(position / span), keys by z_i^(-position / span), z_i = (2i /
    head_dim + gamma) / (1 + gamma): products of fast pairs decay with the distance. The length is
    unlimited; later keys, if a mask shows any, are amplified.
    """

    # Powers count positions from max_len / 2: this does not change scores and keeps powers small.

    variants = [{"span": 8.0, "pairing": "interleaved"}]
    enters = ("rotate", "rotate_key")

    def __init__(
        self,
        head_dim: int,
        max_len: int,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
        # channel i with i + head_dim / 2, or 2i with 2i + 1
        pairing: Literal["half", "interleaved"] = "half",
        span: float = 512.0,  # tokens over which pair i decays by z_i
        gamma: float = 0.4,  # sets the decay of the fastest pair: z_0 = gamma / (1 + gamma)
    ):
        super().__init__(head_dim, max_len, theta=theta, pairing=pairing)
        self.span = span
        self.gamma = gamma

    @classmethod
    def check(cls, options, context):
        yield from above(options, theta=0, span=0, gamma=0)

    @classmethod
    def cannot(cls, options, context):
        yield from odd_channel_fault(context)

    def prepare(  # type: ignore[override]
        self, query: Tokens, key: Tokens, cached: int = 0
    ) -> XPosTables:
        factors = self._factors(query)
        of_key = factors if key.position is query.position else self._factors(key)
        return XPosTables(super().prepare(query, key), factors, of_key)

    def _factors(self, tokens: Tokens) -> Tensor:
        """z^(position / span) for each channel."""
        exponent = self.exponent(tokens.position.device)
        power = (tokens.position.float() - self.trained_len / 2)[:, None, :, None] / self.span
        factors = ((exponent + self.gamma) / (1 + self.gamma)) ** power  # (b, 1, t, head_dim / 2)
        return factors.repeat_interleave(2, -1) if self.interleaved else factors.repeat(1, 1, 1, 2)
