"""The sum of an earlier residual stream and a later one."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.extra.base import Extra
from xformer_kit.registry import Context, Fault, Options
from xformer_kit.tensors import hidden, vector

JoinForm = Literal["factor", "matrix"]


class JoiningExtra(Extra):
    """Base of extras that join the stream before a layer with an earlier one."""

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        if max(len(stack.blocks) for stack in context.stacks) < 2:
            fix = "Try model.layers=2, or leave it out."
            yield Fault("", "needs a layer after the first", fix=fix)


class Join(nn.Module):
    """a x + b y with two learned numbers, 1 and 0 at the start; or x + [x, y] W with W (2 dim,
    dim), 0 at the start, for streams x and y (b, t, dim). At the start the result is x.
    """

    def __init__(self, dim: int, form: JoinForm):
        super().__init__()
        start = torch.tensor([1.0, 0.0]) if form == "factor" else torch.zeros(dim, 2 * dim)
        self.weight = nn.Parameter(start)
        self.parameter_info = {
            "weight": vector("2") if form == "factor" else hidden("dim", "2*dim")
        }

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return torch.zeros(shape) if len(shape) > 1 else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.weight.ndim > 1:
            return x + F.linear(torch.cat([x, y], -1), self.weight)
        return torch.addcmul(self.weight[0] * x, self.weight[1], y)

    def extra_repr(self) -> str:
        return "factor" if self.weight.ndim < 2 else "matrix"
