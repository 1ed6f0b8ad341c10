"""Positions as angles, and content as lengths."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, exact, spread
from xformer_kit.registry import above


@POSITIONS.register("polar", also_called=("pope", "polar_coordinate"))
class Polar(Position):
    """Lengths by content and angles by position: sum_c |q_i|_c |k_j|_c cos((i - j) theta^(-c /
    head_dim) - d_c) * scale.

    The sum is over channels c, |x| = softplus(x) is a length that follows from the content alone,
    and d a learned angle of each head and channel, from -2 pi to 0 (PoPE: Gopalakrishnan et al.,
    2025, arXiv:2509.10534). There is no longest text.
    """

    # Keys are cached as they are: turned, they would have two numbers for each channel.

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
        start: Literal[
            "zero", "uniform"
        ] = "zero",  # where d starts: at 0, or drawn from -2 pi to 0
        per_layer: bool = False,  # d for each layer, in place of one for the stack
    ):
        super().__init__()
        self.theta = theta
        self.drawn = start == "uniform"
        self.angle = nn.Parameter(torch.zeros(heads, head_dim))

    @classmethod
    def check(cls, options, context):
        yield from above(options, theta=0)

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=generator) * (-2 * math.pi if self.drawn else 0)

    def scores(self, attn, q, k, context):
        d = exact(self.angle).clamp(-2 * math.pi, 0)[:, None]
        asks, there = (
            self._turned(q, context.query.position, -d),
            self._turned(k, context.key.position),
        )
        return asks @ spread(there, q.shape[1]).mT * attn.scale

    def _turned(self, x: Tensor, position: Tensor, more: Tensor | float = 0.0) -> Tensor:
        """(b, h, t, d) -> (b, h, t, 2 d): softplus(x) times the cosine and the sine of its
        angle.
        """
        share = torch.arange(x.shape[-1], device=x.device, dtype=torch.float32) / x.shape[-1]
        angle = position[:, None, :, None].float() * self.theta**-share + more
        length = F.softplus(exact(x))
        return torch.cat([length * angle.cos(), length * angle.sin()], -1).to(x.dtype)

    def extra_repr(self) -> str:
        return f"theta={self.theta:g}"
