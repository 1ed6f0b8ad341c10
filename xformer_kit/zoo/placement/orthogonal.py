"""Only the part of an output that is orthogonal to the residual stream is added."""

import torch
from torch import Tensor

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms
from xformer_kit.registry import above


def orthogonal_part(y: Tensor, x: Tensor, eps: float) -> Tensor:
    """y - <x, y> / (|x|^2 + eps) x, token by token, computed in fp32 or better."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    x, wide = x.to(dtype), y.to(dtype)
    share = (x * wide).sum(-1, keepdim=True) / (x.square().sum(-1, keepdim=True) + eps)
    return (wide - share * x).to(y.dtype)


@PLACEMENTS.register("orthogonal", also_called=("orthog_residual", "orthogonal_residual", "oru"))
class OrthogonalResidual(Placement):
    """x + y - <x, y> / (|x|^2 + eps) x with y = f(norm(x)): only the part of a sublayer's output
    that is orthogonal to the stream is added (Oh et al., 2025, arXiv:2505.11881,
    feature-wise).

    Sublayers in parallel are summed first, which gives the same. x-transformers' `orthog_residual`
    computes <x, y> over a whole text, so there a token depends on later ones.
    """

    variants = [{"eps": 0.1, "shared": False}]

    def __init__(
        self,
        norm: MakeNorm,
        parallel: int,
        *,
        eps: float = 1e-6,  # added to the stream's squared length
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.eps = eps

    @classmethod
    def check(cls, options, context):
        yield from above(options, "Try 1e-6.", eps=0)

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + orthogonal_part(f(self.norm(x)), x, self.eps),)
