"""Norms: norm(dim) -> Module over the last axis, x (..., dim) -> the same shape.

A norm that does nothing is an nn.Identity; components that need a norm are refused with it.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.registry import Fault, Registry, above, at_least, format_value
from xformer_kit.tensors import vector
from xformer_kit.tensors.tokens import scaled_to_unit


class NormArguments:
    """What the model passes to the constructor of a norm."""

    dim: int  # channels of the last axis of its input


NORMS = Registry("norm", caller_arguments=NormArguments)


HALF = (torch.bfloat16, torch.float16)


@NORMS.register("layer", also_called=("layer_norm", "layernorm", "ln"))
class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, over channels (Ba et al., 2016,
    arXiv:1607.06450, eq. 4).

    Without bias it is the norm of MPT and Cohere, without both that of OLMo (Groeneveld et al.,
    2024, arXiv:2402.00838, section 2.1). With `unit_offset` the gain is 1 + offset, so that weight
    decay would pull it to 1 (LayerNorm1P of the released Nemotron).
    """

    parameter_info = {
        "weight": vector("normalised"),
        "offset": vector("normalised"),
        "bias": vector("normalised", bias=True),
    }

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,  # added to the variance
        weight: bool = True,  # whether channels are multiplied by a learned weight
        bias: bool = True,  # whether a learned bias is added
        unit_offset: bool = False,  # whether the gain is 1 + a learned offset
    ):
        super().__init__()
        self.eps = eps
        self.shape = (dim,)
        self.weight = nn.Parameter(torch.ones(dim)) if weight and not unit_offset else None
        self.offset = nn.Parameter(torch.zeros(dim)) if unit_offset else None
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, eps=0)
        yield from _without_weight(options, unit_offset=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) -> the same shape."""
        weight = self.weight if self.offset is None else 1 + self.offset
        # F's wrapper doubles its cost at one row
        return torch.layer_norm(x, self.shape, weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        weight, offset, bias = (
            tensor is not None for tensor in (self.weight, self.offset, self.bias)
        )
        return f"{self.shape[0]}, eps={self.eps}, weight={weight}, offset={offset}, bias={bias}"


def _without_weight(options: Any, **defaults: Any) -> Iterator[Fault]:
    """Yields the options that change a weight, if there is none. defaults: of these options."""
    for name, default in defaults.items():
        value = getattr(options, name)
        if options.weight is False and value != default:
            rule = "changes the weight, and with weight=false there is none"
            yield Fault(name, rule, format_value(value), fix="Leave it out.")


@NORMS.register("rms", also_called=("rms_norm", "rmsnorm"))
class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over channels (Zhang and Sennrich, 2019,
    arXiv:1910.07467, eq. 4).

    With `unit_offset` the gain is 1 + offset, so that weight decay would pull it to 1 (the released
    Gemma); the parameter is called `offset` because it starts at 0. In half precision the mean is
    computed in fp32, and `cast` selects where the result is cast back to the input's precision:
    after the multiplication by the weight (OLMo 2, Gemma) or before it (Llama). In fp32 both are
    the same. Without a weight it is the norm of Qin et al., 2023 (SRMSNorm of TransNormerLLM:
    arXiv:2307.14995), and of nanochat.
    """

    parameter_info = {"weight": vector("normalised"), "offset": vector("normalised")}

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-6,  # added to the mean square
        weight: bool = True,  # whether channels are multiplied by a learned weight
        unit_offset: bool = False,  # whether the gain is 1 + a learned offset
        # back to half precision after or before the weight
        cast: Literal["after", "before"] = "after",
    ):
        super().__init__()
        self.eps = eps
        self.shape = (dim,)
        self.cast = cast
        self.weight = nn.Parameter(torch.ones(dim)) if weight and not unit_offset else None
        self.offset = nn.Parameter(torch.zeros(dim)) if unit_offset else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, eps=0)
        yield from _without_weight(options, unit_offset=False, cast="after")

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) -> the same shape."""
        weight: Any = self.weight
        if x.dtype in HALF and (weight is None or self.cast == "before"):
            return self._half_precision(x)
        if self.offset is not None:
            weight = 1 + self.offset
        if _uses_own_function(x, weight):
            weight = x.new_ones(self.shape) if weight is None else weight
            return _RMSNormFunction.apply(x, weight, self.eps)[0]
        return F.rms_norm(x, self.shape, weight, self.eps)

    def _half_precision(self, x: Tensor) -> Tensor:
        """Computes two cases that torch's function does not: 1 + offset in fp32, and a weight that
        is applied after rounding.
        """
        weight: Any = self.weight if self.offset is None else 1 + self.offset.float()
        h = F.rms_norm(x.float(), self.shape, None, self.eps)
        if weight is None:
            return h.to(x.dtype)
        return ((h if self.cast == "after" else h.to(x.dtype)) * weight).to(x.dtype)

    def extra_repr(self) -> str:
        weight, offset = self.weight is not None, self.offset is not None
        return (
            f"{self.shape[0]}, eps={self.eps}, weight={weight}, offset={offset}, cast={self.cast}"
        )


def _uses_own_function(x: Tensor, weight: Tensor | None) -> bool:
    """Whether to use `_RMSNormFunction` instead of torch's function: for gradients on CPU, where
    torch has no fused kernel and the backward pass is a dozen small operations. Not while
    compiling, which fuses them.
    """
    return (
        torch.is_grad_enabled()
        and x.device.type == "cpu"
        and (weight is None or x.dtype == weight.dtype)
        and x.dtype in (torch.float32, torch.float64)
        and not torch.compiler.is_compiling()
    )


class _RMSNormFunction(torch.autograd.Function):
    """Returns y = x r w and r = 1 / sqrt(mean(x^2) + eps), (..., 1).

    dL/dx = r (g w - x r mean(g w x r)), dL/dw = sum(g x r). LayerNorm's fused backward pass with
    mean 0 computes both, except that it subtracts r mean(g w) from dL/dx.
    """

    @staticmethod
    def forward(x, weight, eps):
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        r = square.div_(x.shape[-1]).add_(eps).rsqrt_()
        return x * r * weight, r

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.eps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, weight, r = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, which includes that of r
            r = (x.square().mean(-1, keepdim=True) + ctx.eps).rsqrt()
            n, gw = x * r, g * weight
            dx = r * (gw - n * (gw * n).mean(-1, keepdim=True))
            return dx, (g * n).flatten(0, -2).sum(0), None
        dx, dw, _ = torch.ops.aten.native_layer_norm_backward(
            g, x, weight.shape, torch.zeros_like(r), r, weight, None, [True, True, False]
        )
        return dx.add_((g @ (weight / weight.numel()))[..., None] * r), dw, None


@NORMS.register("none", also_called=("identity",))
class NoNorm(nn.Identity):
    """x: no normalisation."""

    def __init__(self):
        super().__init__()


@NORMS.register("l2", also_called=("l2_norm", "l2norm", "normalize", "unit"))
class L2Norm(nn.Module):
    """x / max(|x|, eps): every token has length 1, nothing is learned (Henry et al., 2020,
    arXiv:2010.04245, for queries and keys).
    """

    def __init__(
        self,
        *,
        eps: float = 1e-6,  # lower bound of the length
    ):
        super().__init__()
        self.eps = eps

    @classmethod
    def check(cls, options, context):
        yield from above(options, "Try 1e-6.", eps=0)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) -> the same shape."""
        return scaled_to_unit(x, self.eps).to(x.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class PointwiseNorm(nn.Module):
    """Base of norms without statistics of the token: pointwise(x) * weight + bias. `initial`: the
    initial values of further learned numbers.
    """

    parameter_info = {
        "weight": vector("normalised"),
        "bias": vector("normalised", bias=True),
    }

    def __init__(self, dim: int, bias: bool, **initial: float):
        super().__init__()
        self.parameter_info = dict.fromkeys(initial, vector("1"))
        for name, start in initial.items():
            setattr(self, name, nn.Parameter(torch.full((1,), float(start))))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    @classmethod
    def check(cls, options, context):
        yield from above(options, "Try 0.5.", alpha=0)

    def pointwise(self, x: Tensor) -> Tensor:
        """Applies an element-wise function to x."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) -> the same shape."""
        h = self.pointwise(x) * self.weight
        return (h if self.bias is None else h + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, bias={self.bias is not None}"


@NORMS.register("dyt", also_called=("dynamic_tanh", "DynamicTanh"))
class DyT(PointwiseNorm):
    """tanh(alpha x) * weight + bias with one learned alpha, without statistics of the token
    (Dynamic Tanh: Zhu et al., 2025, arXiv:2503.10622, section 4 and algorithm 1).

    Wider language models need a smaller initial alpha (section 7.2).
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,  # start of the learned factor
        bias: bool = True,  # whether a learned bias is added
    ):
        super().__init__(dim, bias, alpha=alpha)

    def pointwise(self, x):
        return torch.tanh(self.alpha * x)
