"""Placements with factors on the stream or on the sublayers' outputs: constant, or learned."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xformer_kit.placement.base import PLACEMENTS, MakeNorm, Placement, SublayerNorms
from xformer_kit.registry import above
from xformer_kit.tensors import vector


def deepnorm_factors(stack: str, stacks: Mapping[str, int]) -> tuple[float, float]:
    """Returns alpha and beta of a stack; `stacks` is the number of layers of each stack (Wang et
    al., 2022, figure 2).
    """
    layers = stacks[stack]
    if len(stacks) == 1:
        return (2 * layers) ** 0.25, (8 * layers) ** -0.25
    if stack == "decoder":
        return (3 * layers) ** 0.25, (12 * layers) ** -0.25
    factor = (stacks["encoder"] ** 4 * stacks["decoder"]) ** (1 / 16)
    return 0.81 * factor, 0.87 / factor


@PLACEMENTS.register("deepnorm", also_called=("deep_norm",))
class DeepNorm(Placement):
    """norm(alpha x + f(x)), with a factor beta on the initial matrices of values, outputs and
    feed-forward networks (DeepNorm: Wang et al., 2022, arXiv:2203.00555, figure 2).

    With N encoder and M decoder layers, alpha and beta are (2N)^(1/4) and (8N)^(-1/4) in a model
    with only an encoder, and the same with M in a model with only a decoder; with both, 0.81 (N^4
    M)^(1/16) and 0.87 (N^4 M)^(-1/16) in the encoder, (3M)^(1/4) and (12M)^(-1/4) in the decoder.
    The paper uses init=xavier with init.depth_scaled=false.
    """

    final_norm = False

    def __init__(
        self,
        norm: MakeNorm,
        stack: str,
        stacks: Mapping[str, int],
        *,
        alpha: float | None = None,  # factor of the residual stream; null is the paper's
        beta: float | None = None,  # factor of the initial standard deviation; null is the paper's
    ):
        super().__init__()
        paper_alpha, paper_beta = deepnorm_factors(stack, stacks)
        self.alpha = paper_alpha if alpha is None else alpha
        self.beta = paper_beta if beta is None else beta
        self.norm = norm()

    @classmethod
    def check(cls, options, context):
        yield from above(options, "null is that of the paper.", alpha=0, beta=0)

    def forward(self, state, f, tokens):
        (x,) = state
        return (self.norm(self.alpha * x + f(x)),)

    @property
    def value_gain(self):
        return self.beta

    def extra_repr(self):
        return f"alpha={self.alpha:.4g}, beta={self.beta:.4g}"


class ChannelScale(nn.Module):
    """weight * x, with a learned factor for each channel of x [..., dim]; all are `start` at
    first.
    """

    parameter_info = {"weight": vector("dim")}

    def __init__(self, dim: int, start: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), float(start)))

    def forward(self, x: Tensor) -> Tensor:
        """x (b, t, dim) -> the same shape."""
        return self.weight * x


@PLACEMENTS.register("layer_scale", also_called=("layerscale",))
class LayerScale(Placement):
    """x + weight * f(norm(x)) with a learned factor for each channel, small at the start (Touvron
    et al., 2021, arXiv:2103.17239, eq. 4).

    It starts at 0.1 up to 18 layers, at 1e-5 up to 24, at 1e-6 in deeper stacks (section 2).
    """

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        layers: int,
        parallel: int,
        *,
        start: float | None = None,  # initial factor; null depends on the number of layers
        # whether parallel sublayers share one norm; each has its own factors
        shared: bool = True,
    ):
        super().__init__()
        if start is None:
            start = 0.1 if layers <= 18 else 1e-5 if layers <= 24 else 1e-6
        self.norm = SublayerNorms(norm, parallel, shared)
        self.scale = nn.ModuleList(ChannelScale(dim, start) for _ in range(parallel))

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + f(self.norm(x), after=self.scale),)
