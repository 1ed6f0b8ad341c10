"""nGPT: a residual stream whose tokens have length 1."""

import torch
from torch import Tensor, nn

from xformer_kit.placement.base import PLACEMENTS, Placement
from xformer_kit.registry import above
from xformer_kit.tensors import vector
from xformer_kit.tensors.tokens import scaled_to_unit


def unit(x: Tensor) -> Tensor:
    """x / |x| over channels, with the length in fp32 or better; 0 stays 0."""
    return scaled_to_unit(x, 1e-6).to(x.dtype)


class Step(nn.Module):
    """alpha * (unit(y) - x): a step from x towards y. The parameter starts at `scale` and alpha =
    start / scale * |parameter| at `start`.
    """

    parameter_info = {"weight": vector("dim")}

    def __init__(self, dim: int, start: float, scale: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), scale))
        self.factor = start / scale

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x and y (b, t, dim) -> (b, t, dim)."""
        return self.factor * self.weight.abs() * (unit(y) - x)


@PLACEMENTS.register("ngpt")
class NGPT(Placement):
    """unit(x + alpha * (unit(f(x)) - x)) with unit(x) = x / |x| and a learned alpha for each
    channel of each sublayer (nGPT: Loshchilov et al., 2024, arXiv:2410.01131, eq. 10 and 11).

    The stream starts as unit(embedding). alpha starts at alpha_init, about 1 / layers; the
    parameter is alpha_scale / alpha_init times alpha (section 2.5), so that Adam changes alpha
    alpha_init / alpha_scale times as fast as other weights. alpha is not negative: it is computed
    from the parameter's absolute value, as in the authors' code. The steps of parallel sublayers
    are added; a sublayer that stochastic depth skips adds none. The other options of nGPT are
    extra=unit_weights, model.logit_scale=learned, ffn.scales=true, attn.qk_norm={name: each_head,
    after: true} with norm=rms, and no weight decay; see experiment=ngpt.
    """

    final_norm = False

    def __init__(
        self,
        dim: int,
        parallel: int,
        *,
        alpha_init: float = 0.05,  # initial value of alpha
        alpha_scale: float | None = None,  # initial value of the parameter; null is 1 / sqrt(dim)
    ):
        super().__init__()
        scale = dim**-0.5 if alpha_scale is None else float(alpha_scale)
        self.steps = nn.ModuleList(Step(dim, alpha_init, scale) for _ in range(parallel))

    @classmethod
    def check(cls, options, context):
        yield from above(options, "Try 0.05.", alpha_init=0)
        yield from above(options, "null is 1 / sqrt(dim).", alpha_scale=0)

    @staticmethod
    def start(x, streams):
        return (unit(x),)

    def forward(self, state, f, tokens):
        (x,) = state
        steps = [step(x, one(x)) for step, one in zip(self.steps, f.sublayers, strict=True)]
        return (unit(x + f.total(steps)),)
