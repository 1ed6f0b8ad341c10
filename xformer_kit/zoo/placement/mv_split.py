"""What all tokens of a text have in common, and what tells them apart, added each in its own
way.
"""

import torch
from torch import Tensor, nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms


def common(x: Tensor, real: Tensor | None, document: Tensor | None) -> Tensor:
    """The mean over the real tokens of each text: x (b, t, c) -> (b, 1, c), or (b, t, c) where
    `document` tells texts apart.
    """
    weight = None if real is None else real.to(x.dtype)[..., None]  # (b, t, 1)
    if document is None:
        return (
            x.mean(1, keepdim=True)
            if weight is None
            else (weight * x).sum(1, keepdim=True) / _some(weight.sum(1, True))
        )
    starts = torch.zeros_like(document)
    starts[:, 1:] = document[:, 1:] != document[:, :-1]
    weight = x.new_ones(*document.shape, 1) if weight is None else weight
    held = torch.cat([weight * x, weight.expand(len(x), -1, -1)], -1)
    text = starts.cumsum(1)[..., None].expand_as(held)  # (b, t, c + 1)
    sums = torch.zeros_like(held).scatter_add(1, text, held).gather(1, text)
    return sums[..., :-1] / _some(sums[..., -1:])


def _some(count: Tensor) -> Tensor:
    return count.clamp(min=1)  # of a text that is padding alone


class Split(nn.Module):
    """beta * (y - mean(y)) + alpha * (mean(y) - mean(x)), with a factor for each channel."""

    def __init__(self, dim: int, alpha: float, beta: float):
        super().__init__()
        self.alpha, self.beta = (
            nn.Parameter(torch.full((dim,), float(start))) for start in (alpha, beta)
        )

    def forward(self, x: Tensor, y: Tensor, real: Tensor | None, document: Tensor | None) -> Tensor:
        mean = common(y, real, document)
        return self.beta * (y - mean) + self.alpha * (mean - common(x, real, document))


@PLACEMENTS.register(
    "mv_split", also_called=("mean_split", "mv_split_residual", "mean_variance_split")
)
class MVSplit(Placement):
    """x + beta * (y - mean(y)) + alpha * (mean(y) - mean(x)) with y = f(norm(x)) and means over the
    tokens of a text (MV-Split: Lu, 2026, arXiv:2605.06169, as x-transformers' `mv_split_residual`
    has it).

    alpha and beta are learned for each channel. What tells tokens apart is added in a small
    measure; what they have in common moves towards that of y, and at the start not at all. Means
    are over the real tokens of a document. Sublayers in parallel have factors of their own and read
    one norm or one each; one that stochastic depth skips adds nothing.
    """

    variants = [{"alpha": 0.3, "beta": 0.6, "shared": False}]
    breaks = {
        "causality": "a mean over a whole text lets tokens hear of later ones",
        "cache": "a new token changes the mean of all before it",
        "nothing": (
            "tokens hear of each other by the mean of their text, also where a mask shows them"
            " nothing"
        ),
    }

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        parallel: int,
        *,
        alpha: float = 0.0,  # start of the factor of what tokens have in common
        beta: float = 0.03,  # start of the factor of what tells them apart
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.split = nn.ModuleList(Split(dim, alpha, beta) for _ in range(parallel))

    def forward(self, state, sublayers, total, tokens):
        (x,) = state
        outputs = self.norm.outputs(x, sublayers)
        return (
            x
            + total(
                [
                    split(x, y, tokens.real, tokens.document)
                    for split, y in zip(self.split, outputs, strict=True)
                ]
            ),
        )
