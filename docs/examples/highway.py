"""A placement: python train.py components=[docs/examples/highway.py] placement=highway"""

import torch
from torch import nn
from torch.nn import functional as F

from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.tensors import hidden, vector


@PLACEMENTS.register("highway")
class Highway(Placement):
    """t f(norm(x)) + (1 - t) x with t = sigmoid(x W + b) (Srivastava et al., 2015,
    arXiv:1505.00387, eq. 3).
    """

    parameter_info = {"weight": hidden("dim", "dim"), "bias": vector("dim", bias=True)}

    def __init__(self, dim: int, norm, *, start: float = -2.0):  # initial b
        super().__init__()
        self.norm, self.initial_bias = norm(), start
        self.weight = nn.Parameter(torch.empty(dim, dim))
        self.bias = nn.Parameter(torch.full((dim,), start))

    def initial(self, name, shape, generator):
        return torch.full(shape, self.initial_bias) if name == "bias" else None

    def forward(self, state, f, tokens):
        (x,) = state
        t = torch.sigmoid(F.linear(x, self.weight, self.bias))
        return (torch.lerp(x, f(self.norm(x)), t),)
