"""The error function instead of a norm."""

import torch

from xformer_kit.norm import NORMS, PointwiseNorm


@NORMS.register("derf", also_called=("dynamic_erf", "DynamicErf"))
class Derf(PointwiseNorm):
    """erf(alpha x + s) * weight + bias with one learned alpha and one learned s, without statistics
    of the token (Dynamic erf: Chen et al., 2025, arXiv:2512.10938).

    It is steeper than `dyt` where both have the same alpha: erf has slope 2 / sqrt(pi) at 0, tanh
    1. The parameter is called `factor`, as `dyt` may have another initial alpha.
    """

    variants = [{"alpha": 0.3, "shift": 0.2, "bias": False}]

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,  # start of the learned factor
        shift: float = 0.0,  # start of the learned s
        bias: bool = True,  # whether a learned bias is added
    ):
        super().__init__(dim, bias, factor=alpha, shift=shift)

    def pointwise(self, x):
        return torch.erf(self.factor * x + self.shift)
