"""Separate factors for the mean of the tokens of a text and for the deviations from it."""

import torch
from torch import Tensor, nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms
from xformer_kit.tensors import vector


def text_mean(x: Tensor, real: Tensor | None, document: Tensor | None) -> Tensor:
    """Returns the mean over the real tokens of each text: x (b, t, c) -> (b, 1, c), or (b, t, c)
    with `document`.
    """
    weight = None if real is None else real.to(x.dtype)[..., None]  # (b, t, 1)
    if document is None:
        if weight is None:
            return x.mean(1, keepdim=True)
        return (weight * x).sum(1, keepdim=True) / _at_least_one(weight.sum(1, True))
    starts = torch.zeros_like(document)
    starts[:, 1:] = document[:, 1:] != document[:, :-1]
    weight = x.new_ones(*document.shape, 1) if weight is None else weight
    weighted = torch.cat([weight * x, weight.expand(len(x), -1, -1)], -1)
    text = starts.cumsum(1)[..., None].expand_as(weighted)  # (b, t, c + 1)
    sums = torch.zeros_like(weighted).scatter_add(1, text, weighted).gather(1, text)
    return sums[..., :-1] / _at_least_one(sums[..., -1:])


def _at_least_one(count: Tensor) -> Tensor:
    return count.clamp(min=1)  # for a text that is only padding


class MeanSplit(nn.Module):
    """beta * (y - mean(y)) + alpha * (mean(y) - mean(x)), with a factor for each channel."""

    parameter_info = {"alpha": vector("dim"), "beta": vector("dim")}

    def __init__(self, dim: int, alpha: float, beta: float):
        super().__init__()
        self.alpha, self.beta = (
            nn.Parameter(torch.full((dim,), float(start))) for start in (alpha, beta)
        )

    def forward(self, x: Tensor, y: Tensor, real: Tensor | None, document: Tensor | None) -> Tensor:
        mean = text_mean(y, real, document)
        return self.beta * (y - mean) + self.alpha * (mean - text_mean(x, real, document))


@PLACEMENTS.register(
    "mv_split", also_called=("mean_split", "mv_split_residual", "mean_variance_split")
)
class MVSplit(Placement):
    """x + beta * (y - mean(y)) + alpha * (mean(y) - mean(x)) with y = f(norm(x)) and means over the
    tokens of a text (MV-Split: Lu, 2026, arXiv:2605.06169, as x-transformers' `mv_split_residual`
    has it).

    alpha and beta are learned for each channel. Deviations from the mean are added with a small
    factor; the mean moves towards that of y, at the start not at all. Means are over the real
    tokens of a document. Each of several parallel sublayers has its own factors; one that
    stochastic depth skips adds nothing.
    """

    variants = [{"alpha": 0.3, "beta": 0.6, "shared": False}]
    breaks = {
        "causality": "the mean over a whole text depends on later tokens",
        "cache": "a new token changes the mean of all tokens before it",
        "nothing": "tokens depend on each other through the mean, also if a mask hides all",
    }

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        alpha: float = 0.0,  # initial factor of the mean
        beta: float = 0.03,  # initial factor of the deviations from the mean
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.split = nn.ModuleList(MeanSplit(dim, alpha, beta) for _ in range(parallel))

    def forward(self, state, f, tokens):
        (x,) = state
        outputs = f.outputs(self.norm(x))
        pairs = zip(self.split, outputs, strict=True)
        return (x + f.total([split(x, y, tokens.real, tokens.document) for split, y in pairs]),)
