"""Scaling laws: the loss as a function of parameters and training tokens.

    L(N, D) = E + A N^-alpha + B D^-beta          N parameters, D tokens, L in nats per token

(Hoffmann et al., 2022, arXiv:2203.15556, section 3.3). If N or D is the same in all runs, its term
is part of E. Fitted as in their appendix D.3: the Huber loss (delta 1e-3) of the error of log L,
minimized from a grid of starts. Differences: the terms are parametrized at the geometric mean of
the sizes (A N^-alpha = a (N / mean)^-alpha), which keeps the optimum but decorrelates factors and
exponents, and only the STARTS best points of the grid are optimized. Losses are summed, not
averaged, with tight tolerances: with averages the optimizer stops early and the intervals are far
too narrow (Besiroglu et al., 2024, arXiv:2404.10102).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from xformer_kit.study.levenberg_marquardt import huber, minimize
from xformer_kit.study.statistics import LEVEL, Estimate

STARTS = 12  # best points of the grid, from which a fit starts
EXPONENTS = (0.05, 5.0)  # bounds of alpha and beta
SPARE_SIZES = 1  # distinct sizes that a fit needs in addition to the number of coefficients
AXES = {"parameters": "alpha", "tokens": "beta"}
COEFFICIENTS = ("E", "A", "alpha", "B", "beta")


class Point(NamedTuple):
    """One run."""

    parameters: float
    tokens: float
    loss: float  # nats per token, or another metric that falls to a floor above 0


class Optimum(NamedTuple):
    """The compute-optimal size and number of tokens; low and high: interval of the parameters."""

    parameters: float
    tokens: float
    loss: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Law:
    """A fitted law; coefficients of an axis that did not vary are None."""

    E: float
    A: float | None
    alpha: float | None
    B: float | None
    beta: float | None
    points: int
    residual: float  # root mean square error of log L
    draws: np.ndarray  # (resamples, 5): E, A, alpha, B, beta

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Coefficient -> (low, high), of the coefficients that the law has."""
        columns = zip(COEFFICIENTS, self.draws.T, strict=True)
        known = {name: draws for name, draws in columns if getattr(self, name) is not None}
        return {name: _bootstrap_interval(draws, self.freedom) for name, draws in known.items()}

    @property
    def at_bounds(self) -> tuple[str, ...]:
        """Exponents whose fit ended at a bound: the runs do not determine them."""
        known = [name for name in AXES.values() if getattr(self, name) is not None]
        return tuple(
            name
            for name in known
            if any(abs(getattr(self, name) - bound) < 1e-6 for bound in EXPONENTS)
        )

    def loss(self, parameters: float, tokens: float) -> float:
        """L(N, D)."""
        terms = ((self.A, self.alpha, parameters), (self.B, self.beta, tokens))
        return self.E + sum(a * size**-exponent for a, exponent, size in terms if a is not None)

    def predict(self, parameters: float, tokens: float) -> Estimate:
        """L(N, D) with the confidence interval of the law (of the mean of many runs), if the law
        holds there. In simulations (normal errors of 0.3 %, 15 to 36 runs) 89 to 93 % of the 95 %
        intervals contained the true loss at 10 times the largest size.
        """
        return Estimate(
            self.loss(parameters, tokens),
            *_bootstrap_interval(self._resampled_losses(parameters, tokens), self.freedom),
        )

    def difference(self, other: "Law", parameters: float, tokens: float) -> Estimate:
        """The prediction of this law minus that of the other law. The resamples of the two must
        have different seeds.
        """
        return Estimate(
            self.loss(parameters, tokens) - other.loss(parameters, tokens),
            *_bootstrap_interval(
                self._resampled_losses(parameters, tokens)
                - other._resampled_losses(parameters, tokens),
                min(self.freedom, other.freedom),
            ),
        )

    def _resampled_losses(self, parameters: float, tokens: float) -> np.ndarray:
        """L(N, D) of every resample."""
        E, A, alpha, B, beta = np.nan_to_num(self.draws.T)  # a missing term is 0
        return E + A * parameters**-alpha + B * tokens**-beta

    @property
    def freedom(self) -> int:
        """Degrees of freedom: runs minus coefficients."""
        return self.points - 1 - 2 * ((self.A is not None) + (self.B is not None))

    def optimal(self, flops: float, per: float = 6.0) -> Optimum | None:
        """The N and D of the lowest loss at C = flops = per N D (equation 4 of the paper); None for
        a law of one axis:

        N = G (C / per)^(beta / (alpha + beta)), D = C / (per N), G = (alpha A / (beta B))^(1 /
        (alpha + beta)).

        per: training FLOPs per parameter and token; 6 omits attention scores (Kaplan et al., 2020).
        """
        if self.A is None or self.B is None:
            return None
        best = _optimal_parameters(
            np.array([self.E, self.A, self.alpha, self.B, self.beta]), flops / per
        )
        low, high = _bootstrap_interval(_optimal_parameters(self.draws, flops / per), self.freedom)
        tokens = flops / per / float(best)
        return Optimum(float(best), tokens, self.loss(float(best), tokens), low, high)


def fit(
    points: Sequence[Point],
    axis: str | None = None,
    *,
    resamples: int = 400,
    seed: int = 0,
) -> Law:
    """Fits the law to these runs. axis: parameters or tokens for a law of one of them; by default
    those that vary.

    Confidence intervals are from the residual bootstrap: sizes stay fixed, residuals of log L,
    scaled by sqrt(n / (n - coefficients)), are resampled, and the law is fitted again. Their level
    is raised as for a t interval (Hesterberg, 2015, arXiv:1411.5279). In simulations with normal
    errors (15 runs on one axis, 24 on two) 89 to 98 % of the 95 % intervals contained the true
    exponent. Raises ValueError if a loss is not above 0, or if the runs do not identify the law.
    """
    axes = identified_axes(points, axis)
    sizes = np.log([[float(getattr(point, name)) for name in axes] for point in points])
    y = np.log([float(point.loss) for point in points])
    mean_log_sizes = sizes.mean(0)
    x = sizes - mean_log_sizes
    found, losses = _fit_all(x, y, _best_starts(x, y))
    best = found[losses.argmin()]
    fits = [best, *_resampled(x, y, best, resamples, seed)]
    values, *draws = (_coefficients(theta, mean_log_sizes, axes) for theta in fits)
    known = {
        name: None if math.isnan(v) else float(v)
        for name, v in zip(COEFFICIENTS, values, strict=True)
    }
    residual = float(np.sqrt(np.mean((y - _predicted(best, x)) ** 2)))
    return Law(**known, points=len(y), residual=residual, draws=np.array(draws))


def _resampled(
    x: np.ndarray, y: np.ndarray, best: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """Fits to the curve of the best fit plus resampled residuals."""
    predicted, rng = _predicted(best, x), np.random.default_rng(seed)
    residuals = (y - predicted) * math.sqrt(len(y) / (len(y) - len(best)))
    drawn = np.array([predicted + rng.choice(residuals, len(y)) for _ in range(resamples)])
    fits, _ = _fit_all(x, drawn, np.tile(best, (resamples, 1)))
    return fits


def identified_axes(points: Sequence[Point], axis: str | None) -> list[str]:
    """The axes of the law of these runs. Raises ValueError if they do not identify one."""
    for point in points:
        if not all(math.isfinite(x) and x > 0 for x in point):
            raise ValueError(f"A scaling law needs sizes and losses above 0; got {tuple(point)}.")
    distinct = {name: len({getattr(point, name) for point in points}) for name in AXES}
    axes = [axis] if axis else [name for name in AXES if distinct[name] > 1]
    if not axes:
        raise ValueError(
            "A scaling law needs runs of several sizes; parameters and tokens are the same in all."
        )
    # A law of both axes has 5 coefficients and needs 6 pairs of size and tokens, see below.
    needed = 3 + SPARE_SIZES if len(axes) == 1 else 3
    for name in axes:
        if (count := distinct[name]) < needed:
            raise ValueError(
                f"A scaling law needs at least {needed} numbers of {name}; got {count}."
            )
    pairs = sorted({point[:2] for point in points})
    if len(axes) == 2 and len(pairs) < 5 + SPARE_SIZES:
        raise ValueError(
            f"A scaling law of parameters and tokens needs at least {5 + SPARE_SIZES} pairs; got"
            f" {len(pairs)}."
        )
    x = np.log(pairs)
    if len(axes) == 2 and np.linalg.matrix_rank(x - x.mean(0), tol=1e-3) < 2:
        raise ValueError(
            "Tokens grow in step with parameters, so their exponents cannot be separated: take"
            " more than one number of tokens per parameter, or fit one axis (axis=parameters)."
        )
    return axes


def _predicted(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log L. theta: log E, then for each axis the log of its term at the mean size, and its
    exponent.
    """
    return _curve(theta, x)[0]


def _curve(theta: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log L (..., n) of theta (..., p) at log sizes (n, axes), and its Jacobian (..., n, p)."""
    floor = np.broadcast_to(theta[..., :1, None], (*theta.shape[:-1], 1, len(x)))
    terms = np.concatenate([floor, theta[..., 1::2, None] - theta[..., 2::2, None] * x.T], -2)
    predicted = np.logaddexp.reduce(terms, axis=-2)
    shares = np.exp(terms - predicted[..., None, :])  # of each term in L
    jacobian = np.empty((*predicted.shape, theta.shape[-1]))
    jacobian[..., 0] = shares[..., 0, :]
    jacobian[..., 1::2] = np.moveaxis(shares[..., 1:, :], -2, -1)
    jacobian[..., 2::2] = -jacobian[..., 1::2] * x
    return predicted, jacobian


def _fit_all(x: np.ndarray, y: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(parameters, losses) of fits from start (fits, p) to log losses y (n,) or (fits, n)."""
    # Bounds of the terms, relative to the loss: at most e^5 times it; below e^-30 of it is 0.
    least, most = np.broadcast_to(y.min(-1), len(start)), np.broadcast_to(y.max(-1), len(start))
    low, high = np.empty_like(start), np.empty_like(start)
    low[:, 0], high[:, 0] = least - 30, most + 1
    low[:, 1::2], high[:, 1::2] = least[:, None] - 30, most[:, None] + 5
    low[:, 2::2], high[:, 2::2] = EXPONENTS
    return minimize(lambda theta: _curve(theta, x), y, start, low, high)


def _best_starts(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the STARTS points (STARTS, p) with the smallest Huber loss in a grid of exponents and
    of the share of each term in the median loss.

    x: centered log sizes (n, axes). y: log losses (n,).
    """
    shares, exponents = np.log([0.02, 0.1, 0.3, 0.6]), (0.1, 0.25, 0.5, 1.0)
    median_loss = float(np.median(y))
    grid = np.array(
        [
            [
                median_loss + floor,
                *(value for share, exponent in axes for value in (median_loss + share, exponent)),
            ]
            for floor in np.log([0.05, 0.3, 0.6, 0.9])
            for axes in product(product(shares, exponents), repeat=x.shape[1])
        ]
    )
    return grid[np.argsort(huber(_predicted(grid, x) - y), kind="stable")[:STARTS]]


def _coefficients(theta: np.ndarray, mean_log_sizes: np.ndarray, axes: list[str]) -> np.ndarray:
    """E, A, alpha, B, beta of theta; NaN for a missing term."""
    values = np.full(5, np.nan)
    values[0] = math.exp(theta[0])
    for i, name in enumerate(axes):
        at = 1 + 2 * list(AXES).index(name)
        exponent = theta[2 + 2 * i]
        values[at : at + 2] = math.exp(theta[1 + 2 * i] + exponent * mean_log_sizes[i]), exponent
    return values


def _optimal_parameters(law: np.ndarray, product_of_sizes: float) -> np.ndarray:
    """The N of the lowest loss at a given product N D."""
    _, A, alpha, B, beta = np.moveaxis(law, -1, 0)
    return (alpha * A / (beta * B) * product_of_sizes**beta) ** (1 / (alpha + beta))


def _bootstrap_interval(draws: np.ndarray, freedom: int) -> tuple[float, float]:
    """The bootstrap interval of draws, with the level raised as for a t interval."""
    from scipy.stats import norm, t

    outside = float(norm.sf(t.ppf((1 + LEVEL) / 2, freedom)))
    low, high = np.quantile(draws, [outside, 1 - outside])
    return float(low), float(high)
