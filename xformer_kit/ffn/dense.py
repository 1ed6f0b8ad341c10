"""Dense feed-forward networks: all tokens use the same weights."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xformer_kit.ffn.activations import ACTIVATIONS, Activation
from xformer_kit.registry import (
    Fault,
    OptionGroup,
    Registry,
    above,
    at_least,
    in_range,
    independent_check,
)
from xformer_kit.tensors import Info, SubmoduleInfo, hidden, vector
from xformer_kit.tensors.cache import Cache
from xformer_kit.tensors.fused_projections import FusedProjections
from xformer_kit.tensors.precision import for_linear
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import FFNContext, after_extras

NO_CONTEXT = FFNContext()


class FFN(nn.Module):
    """Base of all feed-forward networks."""

    # Those of the matrices, by their names; a network without one of them ignores it.
    parameter_info: Mapping[str, Info] = {
        "gate": hidden(scales_output=True),
        "up": hidden(scales_output=True),
        "down": hidden(writes=True),
    }

    def forward(self, x: Tensor, context: FFNContext = NO_CONTEXT) -> tuple[Tensor, Report]:
        """x (b, t, dim) -> the output (b, t, dim), and a report. context: the tokens of x, those
        before them, and in generation what `cache` returned.

        The report's `loss` is added to the loss; its other entries are summed over the
        micro-batches and ranks of an optimizer step and passed to `after_step(report)` of the same
        module.
        """
        raise NotImplementedError

    def cache(self, rows: int, length: int) -> Cache | None:
        """Returns an empty cache for `rows` sequences of at most `length` tokens, if it reads
        earlier tokens.
        """
        return None


class FFNArguments:
    """What the model passes to the constructor of a feed-forward network."""

    dim: int  # channels of the residual stream
    depth: int  # index of the first layer that uses it
    layers: int  # number of layers of the stack
    norm: Callable[[int], nn.Module]  # creates a norm of the block's kind over so many channels
    # creates a linear map (in, out, bias); passed only to an expert, which is in both registries
    linear: Callable[[int, int, bool], nn.Module]


FFNS = Registry("ffn", caller_arguments=FFNArguments, base=FFN)


def hidden_width(
    dim: int, width: int | None, expand: float | None, own: float, multiple_of: int
) -> int:
    """Returns the channels between the matrices: `width`, or `expand` (by default the component's
    `own` multiple) x dim, rounded up to `multiple_of`.
    """
    if width is not None:
        return width
    return -(-round((own if expand is None else expand) * dim) // multiple_of) * multiple_of


@independent_check
def check_width(options, context):
    """Yields faults of width, expand, multiple_of and dropout."""
    yield from at_least(options, "channel", width=1, multiple_of=1)
    yield from in_range(options, dropout=(0, 1))
    for name in ("expand", "multiple_of"):
        width, value = options.width, getattr(options, name)
        if width is not None and value is not None:
            rule, got = f"cannot be set together with ffn.{name}", f"{width} and {value}"
            yield Fault("width", rule, got, fix="Set one of them to null.")
    yield from above(options, expand=0)


class Scales(nn.ParameterList):
    """A learned factor for each channel of each input projection, 1 at the start."""

    parameter_info = {name: vector("width") for name in ("0", "1")}

    def __init__(self, maps: int, width: int):
        super().__init__(torch.ones(width) for _ in range(maps))

    def extra_repr(self) -> str:
        # torch's contains the tensor type, which may change
        return f"{len(self)} of {len(self[0])}"


class Dense(FFN):
    """Base of networks with projections from `dim` to `width` channels, an activation, and the
    projection `down`. `hidden_channels` maps the outputs of the projections to the input of `down`,
    channel by channel. All projections are created with `linear(in, out, bias)`, so the same class
    is a network for all tokens or, with another `linear`, the experts of a mixture.

    fusible: names of the input projections, which are the parameters of `activated_channels`.
    scaled: empty, or the activated input projection if each of their channels has a learned factor,
        1 at the start; the activated ones are also multiplied by sqrt(dim), as products of rows and
        inputs of length 1 are about dim^-0.5.
    """

    fusible: tuple[str, ...] = ()
    fused_maps: FusedProjections | None = None  # set in generation, for the maps in `fusible`
    gate: Any  # an input projection, if `activated_channels` has a parameter of this name
    up: Any  # the same

    parameter_info: Mapping[str, Info] = {
        "gate": hidden("width", "dim", scales_output=True),
        "up": hidden("width", "dim", scales_output=True),
        "down": hidden("dim", "width", writes=True),
        "inner_norm": SubmoduleInfo({"normalised": "width"}),
    }

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.fusible = tuple(inspect.signature(cls.activated_channels).parameters)[1:]

    def __init__(
        self,
        dim: int,
        width: int,
        norm: Callable[[int], nn.Module],
        linear: Callable[[int, int, bool], nn.Module],
        bias: bool,
        inner_norm: bool,
        scaled: str,
        dropout: float,
    ):
        super().__init__()
        for name in self.fusible:
            self.add_module(name, linear(dim, width, bias))
        self.down = linear(width, dim, bias)
        self.width = width
        self.inner_norm = norm(width) if inner_norm else None
        self.dropout = dropout
        self.scales = Scales(len(self.fusible), width) if scaled else None
        self.factors = tuple(math.sqrt(dim) if name == scaled else 1.0 for name in self.fusible)

    @classmethod
    def check(cls, options, context):
        return check_width(options, context)

    @classmethod
    def builds_block_norm(cls, options):
        """Whether it builds a norm with the options of its block's norm."""
        return bool(options.get("inner_norm"))

    @classmethod
    def cannot(cls, options, context):
        if not options.inner_norm or context.norm.normalises:
            return
        yield Fault(
            "inner_norm",
            f"takes the norm of {context.path}, and '{context.names['norm']}' does nothing",
            fix="Choose norm=rms or norm=layer there, or inner_norm=false.",
        )

    def forward(self, x, context=NO_CONTEXT):
        """x (b, t, dim) -> the output (b, t, dim), and an empty report."""
        projected = self.project_input(self.mix_tokens(x, context), context)
        return self.down(self.hidden_channels(*projected)), {}

    def mix_tokens(self, x: Tensor, context: FFNContext) -> Tensor:
        """Returns the input (b, t, dim) of the linear maps for x (b, t, dim), by default x. A
        network that reads earlier tokens overrides it; experts read the result of one call for all
        tokens.
        """
        return x

    def project_input(self, x: Tensor, context: FFNContext = NO_CONTEXT) -> Sequence[Tensor]:
        """Returns the output (b, t, width) of each map in `fusible` for x (b, t, dim), as extras
        change it.
        """
        if self.fused_maps is not None:
            maps = self.fused_maps(x)
        else:
            x = for_linear(x)
            maps = [getattr(self, name)(x) for name in self.fusible]
        return maps if context.projected is None else after_extras(context, self.fusible, maps)

    def activated_channels(self, *projected: Tensor) -> Tensor:
        """Combines the outputs of the input projections: each (..., width) -> (..., width)."""
        raise NotImplementedError

    def hidden_channels(self, *projected: Tensor) -> Tensor:
        """`activated_channels` with the options' scales, norm and dropout: each (..., width) ->
        (..., width).
        """
        if self.scales is not None:
            projected = tuple(
                h * (scale * factor)
                for h, scale, factor in zip(projected, self.scales, self.factors, strict=True)
            )
        h = self.activated_channels(*projected)
        if self.inner_norm is not None:
            h = self.inner_norm(h)
        return F.dropout(h, self.dropout, self.training) if self.dropout else h


@FFNS.register("mlp", also_called=("feed_forward", "dense"))
class MLP(Dense):
    """act(x U) D (Vaswani et al., 2017, arXiv:1706.03762, eq. 2).

    With `inner_norm` it is norm(act(x U)) D (NormFormer: Shleifer et al., 2021, arXiv:2110.09456).
    With `scales` it is act(x U * s sqrt(dim)) D, for extra=unit_weights.
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module] = nn.RMSNorm,
        linear: Callable[[int, int, bool], nn.Module] = nn.Linear,
        *,
        width: int | None = None,  # channels; null is expand x dim
        expand: float | None = None,  # multiple of dim; null is 4
        # channels; the expanded width is rounded up to it; null is 1
        multiple_of: int | None = None,
        activation: Activation = "gelu",  # element-wise function
        bias: bool = False,  # whether the matrices have biases
        # whether a norm of the block's kind is applied before the last matrix
        inner_norm: bool = False,
        # whether hidden channels have learned factors, and activated ones the factor sqrt(dim)
        scales: bool = False,
        dropout: float = 0.0,  # probability, on the activated channels
    ):
        width = hidden_width(dim, width, expand, 4, multiple_of or 1)
        scaled = "up" if scales else ""
        super().__init__(dim, width, norm, linear, bias, inner_norm, scaled, dropout)
        self.activation = ACTIVATIONS[activation]

    def activated_channels(self, up):
        return self.activation(up)


@dataclass(frozen=True)
class GatedProduct(OptionGroup):
    """act(gate) * up, the product of the two halves of a gated network."""

    activation: Activation = "silu"  # element-wise function of one of the two halves
    activated: Literal["gate", "up"] = "gate"  # the half that is activated
    # upper bound of the activated half, and of the size of the other; null: none
    clamp: float | None = None
    # bounds of the activated half and the other; null: none
    soft_clamp: tuple[float, float] | None = None
    offset: float = 0.0  # added to the half that is not activated

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        """gate and up (..., width) -> (..., width)."""
        if self.activated == "up":
            gate, up = up, gate
        if self.clamp is not None:
            gate, up = gate.clamp(max=self.clamp), up.clamp(-self.clamp, self.clamp)
        activated = ACTIVATIONS[self.activation](gate)
        if self.soft_clamp is not None:
            bound, up_bound = self.soft_clamp
            activated, up = activated * _tanhc(gate / bound), up_bound * torch.tanh(up / up_bound)
        if self.offset:
            up = up + self.offset
        return activated * up


SWIGLU = GatedProduct()


GLU_NAMES = {
    "swiglu": {"activation": "silu"},
    "geglu": {"activation": "gelu"},
    "reglu": {"activation": "relu"},
}


@FFNS.register("glu", also_called=GLU_NAMES, similar=("gated",))
class GLU(Dense):
    """(act(x G) * x U) D, with three matrices instead of two (Shazeer, 2020, arXiv:2002.05202, eq.
    6).

    With silu it is SwiGLU, with gelu GEGLU, with relu ReGLU, with identity the bilinear layer.
    `expand` is 8/3 by default, so that it has as many parameters as an mlp with 4.

    With `clamp` c and `offset` o it is (act(min(x G, c)) * (clip(x U, -c, c) + o)) D: the released
    gpt-oss has gelu_quick, 7 and 1 (OpenAI, 2025, arXiv:2508.10925).

    With `soft_clamp` [b, c] the factor x of act(x) = x g(x) becomes b tanh(x / b), and the other
    half c tanh(x U / c), so that both are bounded and smooth: x-transformers' ff_glu_softclamp has
    silu or gelu, 4 and 25.

    With `scales` it is (act(x G * s_v sqrt(dim)) * (x U * s_u)) D (nGPT: Loshchilov et al., 2024,
    arXiv:2410.01131, eq. 20 and 21), for extra=unit_weights; experts share s_u and s_v.
    """

    parameter_info = {"up": hidden("width", "dim", scales_output=True, multiplied_by_gate=True)}

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module] = nn.RMSNorm,
        linear: Callable[[int, int, bool], nn.Module] = nn.Linear,
        *,
        width: int | None = None,  # channels; null is expand x dim
        expand: float | None = None,  # multiple of dim; null is 8/3
        # channels; the expanded width is rounded up to it; null is 8
        multiple_of: int | None = None,
        product: GatedProduct = SWIGLU,
        bias: bool = False,  # whether the matrices have biases
        # whether a norm of the block's kind is applied before the last matrix
        inner_norm: bool = False,
        # whether hidden channels have learned factors, and activated ones the factor sqrt(dim)
        scales: bool = False,
        dropout: float = 0.0,  # probability, on the gated channels
    ):
        width = hidden_width(dim, width, expand, 8 / 3, multiple_of or 8)
        scaled = product.activated if scales else ""
        super().__init__(dim, width, norm, linear, bias, inner_norm, scaled, dropout)
        self.product = product

    @classmethod
    def check(cls, options, context):
        yield from check_width(options, context)
        yield from above(options, "null clamps nothing.", clamp=0)
        for i, bound in enumerate(options.soft_clamp or ()):
            if not bound > 0:
                yield Fault(
                    f"soft_clamp[{i}]",
                    "must be above 0",
                    got=bound,
                    fix="null clamps nothing.",
                )

    def activated_channels(self, gate, up):
        return self.product(gate, up)


def _tanhc(x: Tensor) -> Tensor:
    """tanh(x) / x, and 1 at 0. For |x| < 1 it is Lambert's continued fraction, 1 / (1 + x^2 / (3 +
    x^2 / (5 + ...))), whose terms are all positive: there the derivative of the quotient would be a
    small difference of large numbers.
    """
    small = x.abs() < 1
    square, large = torch.where(small, x, 0.0) ** 2, torch.where(small, 1.0, x)
    fraction = torch.full_like(x, 17.0)
    for odd in range(15, 0, -2):
        fraction = odd + square / fraction
    return torch.where(small, 1 / fraction, torch.tanh(large) / large)
