"""Contextual positions: each query counts the tokens that its gates select."""

import torch
from torch import nn

from xformer_kit.position import POSITIONS, Position, scaled_products
from xformer_kit.registry import at_least
from xformer_kit.tensors import embedding


@POSITIONS.register("cope", also_called=("contextual",))
class CoPE(Position):
    """q_i (k_j + e[p_ij])^T * scale, where p_ij counts the tokens that query i selects (Golovneva
    et al., 2024, arXiv:2405.18719).

    p_ij = sum of sigmoid(q_i k_m^T * scale) over the tokens m >= j that the mask shows to i, at
    most `longest` - 1. Between integers e is interpolated linearly.
    """

    variants = [{"longest": 5}]
    parameter_info = {"weight": embedding("positions", "head_dim")}

    def __init__(
        self,
        head_dim: int,
        *,
        longest: int = 64,  # counts with a vector of their own
        per_layer: bool = True,  # one table per layer; false: one per stack
    ):
        super().__init__()
        self.longest = longest
        self.weight = nn.Parameter(torch.zeros(longest, head_dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "counts", longest=2)

    def scores(self, attn, q, k, context):
        content = scaled_products(q, k, attn.scale)
        gates, visible = content.sigmoid(), context.visible(q.shape[1])
        gates = gates if visible is None else gates.masked_fill(~visible, 0)
        place = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.longest - 1)
        products, floor = q * attn.scale @ self.weight.T, place.detach().floor()
        ceiling = (floor + 1).clamp(max=self.longest - 1)
        low, high = (products.gather(-1, count.long()) for count in (floor, ceiling))
        return content + low + (high - low) * (place - floor)
