"""Learned curves over the distance, mixed by the token that looks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, apart, chosen
from xformer_kit.registry import at_least


@POSITIONS.register(
    "curves", also_called=("rel_proj", "relative_projection", "inkling", "distance_basis")
)
class Curves(Position):
    """q_i k_j^T * scale + sum_m (W x_i + b)_m c_m[i - j] in each head, with learned curves c over
    the distance.

    Heads share the curves, and token x_i says how much of each it wants (rel_proj_pos_bias of
    x-transformers, after the Inkling model; no paper). Nothing is added from `longest` tokens on,
    so that there is no longest text.
    bidirectional: later tokens, where a mask shows them, have curves of their own; without it
    nothing is added to them.
    """

    variants = [{"curves": 3, "longest": 5, "bidirectional": True}]

    def __init__(
        self,
        dim: int,
        heads: int,
        max_len: int,
        stack: str,
        *,
        curves: int = 16,  # that are mixed
        longest: (
            int | None
            # tokens: farther ones get nothing; null is max_len, behind which nothing is learned
        ) = None,
        bidirectional: (
            bool | None
        ) = None,  # whether later tokens have curves too; null: in an encoder
        per_layer: bool = True,  # weights and curves for each layer; false: one set for the stack
    ):
        super().__init__()
        self.both = stack == "encoder" if bidirectional is None else bidirectional
        self.heads = heads
        self.longest = longest or max_len
        self.weight = nn.Parameter(torch.zeros(heads * curves, dim))
        self.offset = nn.Parameter(torch.zeros(heads * curves))
        self.curve = nn.Parameter(
            torch.zeros(curves, self.longest * (2 if self.both else 1))
        )  # those for earlier tokens first

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, curves=1)
        yield from at_least(options, "token", longest=1)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return (
            0.02 * torch.randn(shape, generator=generator) if name == "curve" else None
        )  # as in x-transformers

    def read(self, x, context, cache):
        wants = (
            F.linear(x, self.weight, self.offset).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        )  # (b, h, t, curves)
        distance = apart(context)
        far = distance.abs() >= self.longest
        later = distance < 0
        index = distance.abs().clamp(max=self.longest - 1)
        index = index + later * self.longest if self.both else index
        added = chosen(wants @ self.curve, index)
        return added.masked_fill(far if self.both else far | later, 0)
