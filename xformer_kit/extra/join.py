"""The sum of an earlier residual stream and a later one."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.extra.base import Extra, from_memory, to_memory
from xformer_kit.registry import Context, Fault, Options
from xformer_kit.tensors import hidden, vector

JoinForm = Literal["factor", "matrix"]


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
        """x and y (b, t, dim) -> (b, t, dim)."""
        if self.weight.ndim > 1:
            return x + F.linear(torch.cat([x, y], -1), self.weight)
        return torch.addcmul(self.weight[0] * x, self.weight[1], y)

    def extra_repr(self) -> str:
        return "factor" if self.weight.ndim < 2 else "matrix"


class JoiningExtra(Extra):
    """Base of extras that join the stream before a layer with that before an earlier one."""

    def __init__(
        self,
        dim: int,
        layers: int,
        *,
        way: JoinForm = "factor",  # a x + b y, or x + [x, y] W
    ):
        super().__init__()
        self.sources = {str(depth): source for depth, source in self.joined(layers).items()}
        self.joins = nn.ModuleDict({depth: Join(dim, way) for depth in self.sources})

    def joined(self, layers: int) -> dict[int, int]:
        """Returns the layers whose input is joined with that of an earlier one -> the earlier."""
        raise NotImplementedError

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        if max(len(stack.blocks) for stack in context.stacks) < 2:
            fix = "Try model.layers=2, or leave it out."
            yield Fault("", "needs a layer after the first", fix=fix)

    def before_layer(self, state, layer):
        depth = str(layer.depth)
        if depth not in self.sources:
            return state, to_memory(state, f"layer_{depth}")
        earlier = from_memory(layer.memory, f"layer_{self.sources[depth]}")
        return layer.placement.combine_streams(state, earlier, self.joins[depth]), {}
