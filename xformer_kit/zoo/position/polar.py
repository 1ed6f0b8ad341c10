"""Queries and keys in polar coordinates: lengths from the content, angles from the position."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, at_least_fp32, scaled_products
from xformer_kit.registry import above
from xformer_kit.tensors import vector


@POSITIONS.register("polar", also_called=("pope", "polar_coordinate"))
class Polar(Position):
    """Lengths from the content and angles from the position: sum_c |q_i|_c |k_j|_c cos((i - j)
    theta^(-c / head_dim) - d_c) * scale.

    The sum is over channels c; |x| = softplus(x) is a length that depends only on the content, and
    d is a learned angle of each head and channel, from -2 pi to 0 (PoPE: Gopalakrishnan et al.,
    2025, arXiv:2509.10534). The length of a text is unlimited.
    """

    # Keys are cached before the rotation, which would double their channels.

    parameter_info = {"angle": vector("heads", "head_dim")}

    def __init__(
        self,
        heads: int,
        head_dim: int,
        *,
        theta: float = 10_000.0,  # base of the wavelengths, tokens
        # where d starts: at 0, or drawn from -2 pi to 0
        start: Literal["zero", "uniform"] = "zero",
        per_layer: bool = False,  # one d per layer, instead of one per stack
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
        d = at_least_fp32(self.angle).clamp(-2 * math.pi, 0)[:, None]
        queries = self._rotated(q, context.query.position, -d)
        keys = self._rotated(k, context.key.position)
        return scaled_products(queries, keys, attn.scale)

    def _rotated(self, x: Tensor, position: Tensor, offset: Tensor | float = 0.0) -> Tensor:
        """(b, h, t, d) -> (b, h, t, 2 d): softplus(x) times the cosine and the sine of its
        angle.
        """
        exponent = torch.arange(x.shape[-1], device=x.device, dtype=torch.float32) / x.shape[-1]
        angle = position[:, None, :, None].float() * self.theta**-exponent + offset
        length = F.softplus(at_least_fp32(x))
        return torch.cat([length * angle.cos(), length * angle.sin()], -1).to(x.dtype)

    def extra_repr(self) -> str:
        return f"theta={self.theta:g}"
