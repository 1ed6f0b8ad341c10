"""Attention over all earlier outputs instead of their sum."""

import torch
from torch import nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, SublayerNorms
from xformer_kit.tensors import vector
from xformer_kit.zoo.placement._blend import AttendOverDepth
from xformer_kit.zoo.placement._growing import GrowingPlacement


@PLACEMENTS.register(
    "attention_residuals",
    also_called=("attn_res", "attnres", "attn_aggregated_residuals"),
)
class AttentionResiduals(GrowingPlacement):
    """v_k = f(norm(x)) and x <- sum_i a_i v_i with a = softmax_i(w^T v_i / rms(v_i)): attention
    over all earlier outputs replaces their sum (Attention Residuals: Kimi Team, 2026,
    arXiv:2603.15031, its full form).

    v_0 is the input of the stack; i = 0, ..., k. w is learned, one for each group of sublayers, and
    starts at 0, where all outputs have equal weights. The stack's output is such a mixture too. The
    keys' norm has no weight, which w makes redundant. In x-transformers the query is computed from
    the newest stream, and attention to earlier streams is added to the usual sum.

    The state grows with each group, so that sublayers and mixtures are compiled, not blocks.
    """

    variants = [{"shared": False}]
    stream_content = "outputs"

    parameter_info = {"query": vector("dim")}

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        # whether parallel sublayers share one norm; they count as one output
        shared: bool = True,
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.mixture = AttendOverDepth()
        self.query = nn.Parameter(torch.zeros(dim))

    def forward(self, state, f, tokens):
        x, *outputs = state
        outputs = [*outputs, f(self.norm(x))]
        return self.mixture.mix(self.query, outputs), *outputs
