"""entmax: softmax with weights that may be exactly 0.

p = argmax over the simplex of p.s + H_alpha(p) with the entropy of Tsallis, whose solution is p_j =
[(alpha - 1) s_j - tau]_+^(1 / (alpha - 1)) with the tau at which p sums to 1 (Peters et al., 2019,
arXiv:1905.05702, section 3).
"""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.attention import SCORES, Score
from xformer_kit.registry import above

# tau is then exact to the precision of the dtype
HALVINGS = {torch.float64: 60, torch.float32: 30}


@SCORES.register(
    "entmax",
    also_called={"sparsemax": {"alpha": 2.0}, "entmax15": {"alpha": 1.5}, "alpha_entmax": {}},
)
class Entmax(Score):
    """[(alpha - 1) s_j - tau]_+^(1 / (alpha - 1)), with the tau at which weights sum to 1: weights
    that may be exactly 0 (Peters et al., 2019, arXiv:1905.05702, section 3). alpha near 1 is
    softmax, 2 is sparsemax; 1.5 and 2 are exact, by sorting (algorithm 2), others by bisection
    (algorithm 1).
    """

    variants: list[dict[str, Any]] = [{}]

    def __init__(
        self,
        *,
        alpha: float = 1.5,  # above 1; the larger, the fewer keys have weight
    ):
        super().__init__()
        self.alpha = alpha

    @classmethod
    def check(cls, options, context):
        yield from above(options, "At 1 it is softmax: attn.score.name=softmax.", alpha=1)

    def weights(self, scores):
        return entmax(scores, self.alpha)


def entmax(scores: Tensor, alpha: float) -> Tensor:
    """Returns weights over the last axis, alpha > 1; 0 for -inf. Each row needs a finite score."""
    return _Entmax.apply(scores, alpha)


class _Entmax(torch.autograd.Function):
    """The gradient is s g - s (s.g) / sum(s), with s_j = p_j^(2 - alpha) where p_j > 0, else 0
    (proposition 2).
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        x = scores.to(torch.promote_types(scores.dtype, torch.float32))
        x = (x - x.amax(-1, keepdim=True)) * (alpha - 1)
        exact = {1.5: _tau_entmax15, 2.0: _tau_sparsemax}.get(alpha)
        if exact is None:
            p = _entmax_by_bisection(x, alpha)
        else:
            # tau is at least -1: lower scores have no weight, and -inf could not be summed
            x = x.clamp(min=-2)
            p = (x - exact(x)).clamp(min=0) ** (1 / (alpha - 1))
        ctx.save_for_backward(p)
        ctx.alpha = alpha
        # Compiled by torch 2.11, an output that is another name of a saved tensor has no gradient.
        return p if p.dtype == scores.dtype else p.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (p,), (g,) = ctx.saved_tensors, grads
        s = torch.where(p > 0, p ** (2 - ctx.alpha), 0)
        g = s * g
        return (g - s * g.sum(-1, keepdim=True) / s.sum(-1, keepdim=True)).to(grads[0].dtype), None


def _tau_sparsemax(x: Tensor) -> Tensor:
    """tau for alpha = 2, exactly: sum [x - tau]_+ = 1 (Martins and Astudillo, 2016,
    arXiv:1602.02068, algorithm 1).
    """
    high, rank = _sorted(x)
    tau = (high.cumsum(-1) - 1) / rank
    return _select_tau(tau, high)


def _tau_entmax15(x: Tensor) -> Tensor:
    """tau for alpha = 1.5, exactly: sum [x - tau]_+^2 = 1, a quadratic equation for each size of
    the support (algorithm 2).
    """
    high, rank = _sorted(x)
    mean = high.cumsum(-1) / rank
    spread = high.square().cumsum(-1) - rank * mean.square()
    tau = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
    return _select_tau(tau, high)


def _sorted(x: Tensor) -> tuple[Tensor, Tensor]:
    """x in descending order, and the ranks 1, 2, ..."""
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    return x.sort(-1, descending=True).values, rank


def _select_tau(tau: Tensor, high: Tensor) -> Tensor:
    """Selects, from one candidate per size of the support, the last one below its whole support."""
    size = (tau <= high).sum(-1, keepdim=True)
    return tau.gather(-1, size - 1)


def _entmax_by_bisection(x: Tensor, alpha: float) -> Tensor:
    """Weights for any alpha: tau is between -1, where only the largest score has weight 1, and 0
    (algorithm 1).
    """
    power = 1 / (alpha - 1)
    low, width = x.new_full((*x.shape[:-1], 1), -1.0), 1.0
    for _ in range(HALVINGS[x.dtype]):
        width /= 2
        enough = ((x - low - width).clamp(min=0) ** power).sum(-1, keepdim=True) >= 1
        low = torch.where(enough, low + width, low)
    p = (x - low).clamp(min=0) ** power
    return p / p.sum(-1, keepdim=True)
