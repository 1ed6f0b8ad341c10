"""Weighted averages of all earlier streams."""

import torch
from torch import nn
from torch.nn import functional as F

from xformer_kit.placement import PLACEMENTS, MakeNorm, SublayerNorms
from xformer_kit.tensors import vector
from xformer_kit.zoo.placement._blend import Blend
from xformer_kit.zoo.placement._growing import GrowingPlacement


@PLACEMENTS.register("dense_former", also_called=("denseformer", "dwa", "depth_weighted_average"))
class DenseFormer(GrowingPlacement):
    """v_k = x + f(norm(x)) and x <- sum_i a_i v_i with learned numbers a: a depth-weighted average
    (Pagliardini et al., 2024, arXiv:2402.02622, section 3).

    v_0 is the input of the stack; i = 0, ..., k. a starts at 1 for the newest and at 0 for the
    others, which equals placement=pre. Here each group of sublayers computes an average, in the
    paper each block. Layers that share a block share its numbers, counted from the newest.

    The state grows with each group, so that sublayers and mixtures are compiled, not blocks.
    """

    stream_content = "averages"

    parameter_info = {"average": vector("streams")}

    def __init__(
        self,
        norm: MakeNorm,
        latest: int,
        parallel: int,
        *,
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.mixture = Blend()
        self.average = nn.Parameter(F.pad(torch.ones(1), (0, latest + 1)))  # the newest first

    def forward(self, state, f, tokens):
        x, *outputs = state
        outputs = [*outputs, x + f(self.norm(x))]
        weight = self.average[: len(outputs)].flip(0)
        return self.mixture.mix(weight, outputs), *outputs
