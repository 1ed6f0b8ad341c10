"""Attention over all outputs so far in the place of their sum."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.placement import PLACEMENTS, MakeNorm, SublayerNorms
from xformer_kit.zoo.placement._blend import blend
from xformer_kit.zoo.placement._earlier import GrowingPlacement

EPS = 1e-6  # of the norm that makes keys of outputs


def attended(query: Tensor, given: Sequence[Tensor]) -> Tensor:
    """sum_i softmax_i(query^T v_i / rms(v_i)) v_i, for v_i (b, t, dim) and a query (dim,)."""
    scores = [(F.rms_norm(v, query.shape, eps=EPS) * query).sum(-1, keepdim=True) for v in given]
    return blend(torch.stack(scores).softmax(0).unbind(), given)


@PLACEMENTS.register(
    "attention_residuals",
    also_called=("attn_res", "attnres", "attn_aggregated_residuals"),
)
class AttentionResiduals(GrowingPlacement):
    """v_k = f(norm(x)) and x <- sum_i a_i v_i with a = softmax_i(w^T v_i / rms(v_i)): attention
    over all outputs so far in the place of their sum (Attention Residuals: Kimi Team, 2026,
    arXiv:2603.15031, its full form).

    v_0 is what entered the stack; i runs over 0, ..., k. w is learned, one for each group of
    sublayers, and starts at 0: all outputs count alike. Also the stack's output is such a mix. The
    keys' norm has no weight, for w would take it up. x-transformers' has its query from the newest
    stream, attends to streams and leaves their sum as it is.
    """

    variants = [{"shared": False}]
    told = "outputs"

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        # whether parallel sublayers read one norm or one each; they are one output
        shared: bool = True,
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.query = nn.Parameter(torch.zeros(dim))

    def forward(self, state, sublayers, total, tokens):
        x, *given = state
        given.append(total(self.norm.outputs(x, sublayers)))
        return attended(self.query, given), *given
