"""A learned factor of each sublayer, and no norm."""

import torch
from torch import nn

from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.tensors import vector


@PLACEMENTS.register("rezero", also_called=("re_zero",))
class ReZero(Placement):
    """x + alpha f(x) with a learned alpha for each sublayer, 0 at the start, and no norm
    (Bachlechner et al., 2020, arXiv:2003.04887, eq. 3; there the sublayers of a layer share one).
    """

    final_norm = False

    parameter_info = {"alpha": vector("sublayers")}

    def __init__(
        self,
        parallel: int,
        *,
        start: float = 0.0,  # of alpha
    ):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((parallel,), float(start)))

    def forward(self, state, f, tokens):
        (x,) = state
        outputs = f.outputs(x)
        return (x + f.total([alpha * h for alpha, h in zip(self.alpha, outputs, strict=True)]),)
