"""A network whose activation has two learned numbers."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xformer_kit.ffn import FFNS, Dense, hidden_width
from xformer_kit.tensors import vector

BETA, EPS = 0.5, -1e-6
START = 0.8  # of a and b


@FFNS.register("xielu")
class XIELUNetwork(Dense):
    """f(x U) D with f(x) = a x^2 + x / 2 for x > 0 and b (exp(x) - 1 - x) + x / 2 else (xIELU:
    Huang and Schlag, 2024, arXiv:2411.13010, eq. 12; Apertus: arXiv:2509.14233).

    a = softplus(positive) and b = 1 / 2 + softplus(negative) are learned, one number each, 0.8 at
    the start. As in the released code, exp(x) - 1 is that of -1e-6 for x nearer to 0; both
    constants are saved with the weights.
    """

    variants: list[dict[str, Any]] = [{"width": 12, "bias": True}]
    parameter_info = {"positive": vector("1"), "negative": vector("1")}
    beta: Tensor
    eps: Tensor

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module] = nn.RMSNorm,
        *,
        width: int | None = None,  # channels; null is expand x dim
        expand: float | None = None,  # multiple of dim; null is 4
        # channels; the expanded width is rounded up to it; null is 1
        multiple_of: int | None = None,
        bias: bool = False,  # whether the matrices have biases
        # whether a norm of the block's kind is applied before the last matrix
        inner_norm: bool = False,
        dropout: float = 0.0,  # probability, on the activated channels
    ):
        width = hidden_width(dim, width, expand, 4, multiple_of or 1)
        super().__init__(dim, width, norm, nn.Linear, bias, inner_norm, "", dropout)
        self.positive, self.negative = (nn.Parameter(torch.empty(1)) for _ in range(2))
        self.register_buffer("beta", torch.full((1,), BETA))
        self.register_buffer("eps", torch.full((1,), EPS))

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Any:
        """The inverse of softplus, so that a and b are 0.8."""
        starts = {"positive": START, "negative": START - BETA}
        return torch.full(shape, math.log(math.expm1(starts[name]))) if name in starts else None

    def activated_channels(self, up):
        a, b = F.softplus(self.positive), self.beta + F.softplus(self.negative)
        below = (torch.expm1(torch.minimum(up, self.eps.to(up.dtype))) - up) * b
        return torch.where(up > 0, a * up * up, below) + self.beta * up
