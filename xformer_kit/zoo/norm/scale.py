"""Normalises each token to a learned length."""

import torch
from torch import Tensor, nn

from xformer_kit.norm import NORMS
from xformer_kit.registry import above
from xformer_kit.tensors import vector
from xformer_kit.tensors.tokens import scaled_to_unit


@NORMS.register("scale", also_called=("scale_norm", "scalenorm"))
class ScaleNorm(nn.Module):
    """g x / max(|x|, eps) with one learned g (ScaleNorm: Nguyen and Salazar, 2019,
    arXiv:1910.05895).

    g starts at sqrt(dim), where it equals an RMS norm of weight 1.
    """

    # Zero if another norm follows, of queries or after a sublayer.
    parameter_info = {"weight": vector("1", zero_gradient=True)}

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,  # lower bound of the length
    ):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.full((1,), dim**0.5))

    @classmethod
    def check(cls, options, context):
        yield from above(options, "Try 1e-5.", eps=0)

    def forward(self, x: Tensor) -> Tensor:
        return (scaled_to_unit(x, self.eps) * self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"
