"""A norm: python train.py components=[docs/examples/l1_norm.py] norm=l1"""

import torch
from torch import nn

from xformer_kit.norm import NORMS
from xformer_kit.registry import above
from xformer_kit.tensors import at_least_fp32, vector


@NORMS.register("l1")
class L1Norm(nn.Module):
    """x / (mean |x| + eps) * weight, over channels (Hoffer et al., 2018, arXiv:1803.01814,
    section 3, without the mean that they subtract).
    """

    parameter_info = {"weight": vector("normalised")}

    def __init__(self, dim: int, *, eps: float = 1e-6):  # added to the mean size
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    @classmethod
    def check(cls, options, context):
        yield from above(options, eps=0)

    def forward(self, x):
        wide = at_least_fp32(x)
        return (wide / (wide.abs().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight
