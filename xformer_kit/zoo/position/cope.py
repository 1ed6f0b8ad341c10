"""Positions that tokens count themselves."""

import torch
from torch import nn

from xformer_kit.position import POSITIONS, Position, spread
from xformer_kit.registry import at_least


@POSITIONS.register("cope", also_called=("contextual",))
class CoPE(Position):
    """q_i (k_j + e[p_ij])^T * scale, where each token decides what p_ij counts (Golovneva et al.,
    2024, arXiv:2405.18719).

    p_ij = sum of sigmoid(q_i k_m^T * scale) over the tokens m from j on that i sees, at most
    `longest` - 1. Between whole numbers e is mixed linearly.
    """

    variants = [{"longest": 5}]
    looked_up = True

    def __init__(
        self,
        head_dim: int,
        *,
        longest: int = 64,  # counts that are told apart
        per_layer: bool = True,  # a table for each layer; false: one for the stack
    ):
        super().__init__()
        self.longest = longest
        self.weight = nn.Parameter(torch.zeros(longest, head_dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "counts", longest=2)

    def scores(self, attn, q, k, context):
        content, seen = q @ spread(k, q.shape[1]).mT * attn.scale, context.visible(q.shape[1])
        gates = content.sigmoid() if seen is None else content.sigmoid().masked_fill(~seen, 0)
        place = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.longest - 1)
        onto, below = q @ self.weight.T * attn.scale, place.detach().floor()
        low, high = (
            onto.gather(-1, at.long()) for at in (below, (below + 1).clamp(max=self.longest - 1))
        )
        return content + low + (high - low) * (place - below)
