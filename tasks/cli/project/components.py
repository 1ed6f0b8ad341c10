"""Components of this project. A class that is registered is a choice of its group: position=slopes.

docs/guide/components.md of xformer_kit describes the methods of each kind of component.
"""

import torch
from torch import nn

from xformer_kit.position import POSITIONS, Position


@POSITIONS.register("slopes")
class Slopes(Position):
    """-m_h |i - j| is added to the scores, with a learned slope m_h for each head h."""

    def __init__(self, heads: int, *, start: float = 0.1):  # initial slope
        super().__init__()
        self.slope = nn.Parameter(torch.full((heads,), start))

    def bias(self, query, key, head):
        return -self.slope[head] * (query.position - key.position).abs()
