"""Base of routers with learned logits."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.ffn.routes import Router
from xformer_kit.registry import at_least
from xformer_kit.tensors import Info, hidden, vector
from xformer_kit.tensors.precision import no_autocast


class LearnedRouter(Router):
    """Base of routers with logits x W^T + b, (tokens, experts), computed in fp32 or better as in
    Switch (Fedus et al., 2022, arXiv:2101.03961, section 2.4).

    z_loss: factor of the mean over tokens of log(sum_i exp(logit_i))^2, which keeps logits small
    (ST-MoE: Zoph et al., 2022, arXiv:2202.08906, eq. 5).
    """

    parameter_info: Mapping[str, Info] = {
        "weight": hidden("experts", "dim"),
        "bias": vector("experts", bias=True),
    }

    def __init__(self, dim: int, experts: int, bias: bool, z_loss: float):
        super().__init__(experts)
        self.z_loss = z_loss
        self.adds_loss = bool(z_loss)
        self.weight = nn.Parameter(torch.empty(experts, dim))
        self.bias = nn.Parameter(torch.zeros(experts)) if bias else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, z_loss=0)

    def logits(self, x: Tensor) -> Tensor:
        """x (..., dim) -> (..., experts)."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(dtype)
        with no_autocast(x):
            return F.linear(x.to(dtype), self.weight.to(dtype), bias)

    def _z_loss(self, logits: Tensor, real: Tensor) -> Tensor:
        return self.z_loss * (logits.logsumexp(-1).square() * real).sum() / real.sum().clamp(min=1)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]} -> {self.experts}, bias={self.bias is not None}"
