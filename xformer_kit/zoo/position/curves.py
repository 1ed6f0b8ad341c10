"""Learned curves over the distance, mixed with weights of the query's token."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, gather_columns, token_distances
from xformer_kit.registry import at_least
from xformer_kit.tensors import hidden, vector


@POSITIONS.register(
    "curves", similar=("rel_proj", "relative_projection", "inkling", "distance_basis")
)
class Curves(Position):
    """q_i k_j^T * scale + sum_m (W x_i + b)_m c_m[i - j] in each head, with learned curves c over
    the distance.

    Heads share the curves, and token x_i sets the weight of each (rel_proj_pos_bias of
    x-transformers, after the Inkling model; no paper). Nothing is added for distances of `longest`
    tokens or more, so the length is unlimited.
    bidirectional: later tokens, if a mask shows them, have separate curves; without it nothing is
    added to their scores.
    """

    variants = [{"curves": 3, "longest": 5, "bidirectional": True}]

    parameter_info = {
        "weight": hidden("heads*curves", "dim"),
        "offset": vector("heads*curves"),
        "curve": vector("curves", "positions"),
    }

    def __init__(
        self,
        dim: int,
        heads: int,
        max_len: int,
        stack: str,
        *,
        curves: int = 16,  # number of curves
        # tokens: nothing is added at this distance and above; null is max_len
        longest: int | None = None,
        # whether later tokens have curves too; null: in an encoder
        bidirectional: bool | None = None,
        per_layer: bool = True,  # weights and curves per layer; false: one set per stack
    ):
        super().__init__()
        self.bidirectional = stack == "encoder" if bidirectional is None else bidirectional
        self.heads = heads
        self.longest = longest or max_len
        self.weight = nn.Parameter(torch.zeros(heads * curves, dim))
        self.offset = nn.Parameter(torch.zeros(heads * curves))
        # those for earlier tokens first
        self.curve = nn.Parameter(torch.zeros(curves, self.longest * (1 + self.bidirectional)))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, curves=1)
        yield from at_least(options, "token", longest=1)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        # As in x-transformers.
        return 0.02 * torch.randn(shape, generator=generator) if name == "curve" else None

    def read(self, x, context, cache):
        weights = F.linear(x, self.weight, self.offset)
        weights = weights.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (b, h, t, curves)
        distance = token_distances(context)
        far = distance.abs() >= self.longest
        later = distance < 0
        index = distance.abs().clamp(max=self.longest - 1)
        index = index + later * self.longest if self.bidirectional else index
        added = gather_columns(weights @ self.curve, index)
        return added.masked_fill(far if self.bidirectional else far | later, 0)
