"""A position: python train.py components=[docs/examples/learned_slopes.py]
position=learned_slopes
"""

import torch
from torch import nn

from xformer_kit.position import POSITIONS, Position
from xformer_kit.tensors import vector


@POSITIONS.register("learned_slopes")
class LearnedSlopes(Position):
    """-m_h |i - j| is added to scores, with a learned slope m_h for each head (Press et al., 2021,
    arXiv:2108.12409, section 3, where slopes are constant).
    """

    learned = True
    parameter_info = {"slope": vector("heads")}

    def __init__(self, heads: int, *, start: float = 0.1):  # initial slope
        super().__init__()
        self.slope = nn.Parameter(torch.full((heads,), start))

    def bias(self, query, key, head):
        return -self.slope[head] * (query.position - key.position).abs()
