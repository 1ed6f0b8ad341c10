"""How is a signal kept in scale? norm(dim) -> Module over the last axis."""

import torch
from torch import Tensor, nn

from xformer_kit.registry import Registry, at_least

NORMS = Registry("norm", given=("dim",))


@NORMS.register("layer", also_called=("layer_norm", "layernorm", "ln"))
class Layer(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, over channels (Ba et al., 2016, arXiv:1607.06450, eq. 4)."""

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,  # added to the variance
        bias: bool = True,  # whether a learned bias is added
    ):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, eps=0)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}, bias={self.bias is not None}"


@NORMS.register("rms", also_called=("rms_norm", "rmsnorm"))
class RMS(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over channels (Zhang and Sennrich, 2019, arXiv:1910.07467, eq. 4)."""

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-6,  # added to the mean square
    ):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, eps=0)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"


@NORMS.register("none", also_called=("identity",))
class Nothing(nn.Identity):
    """x: no normalisation."""

    def __init__(self):
        super().__init__()
