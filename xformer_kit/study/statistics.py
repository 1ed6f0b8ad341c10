"""Statistics of a few seeds: means with intervals, differences seed by seed, and curves with bands.

Every function takes plain numbers of runs that finished. A run that diverged has no figure: it is
left out by the caller, `count` shows it, and `divergence` tests whether one variant diverges more
often than another.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95  # of all intervals of a study
ALPHA = 1 - LEVEL
BOOTSTRAP_FROM = 20  # seeds
# Differences are taken as equal if they differ only by rounding, relative to the largest
# figure.
ROUNDING = 1e-12
SMALL = ALPHA + ROUNDING  # the largest p that shows a difference


class Estimate(NamedTuple):
    """A number with its interval."""

    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Interval:
    """The mean of some runs. From one run there are neither bounds nor sd (None)."""

    mean: float | None
    low: float | None
    high: float | None
    count: int  # runs
    sd: float | None  # of one run, with count - 1 in the denominator
    level: float = LEVEL


@dataclass(frozen=True)
class PairedDifference:
    """variant - baseline, over the seeds that both have; what cannot be known from so many seeds is
    None.

    method: how bounds and p were found, one of
        t          both from the paired t
        bootstrap  bounds from the bootstrap, p from the paired t
        equal      every difference is 0: bounds 0 and 0, p 1
        sign       every difference is the same and not 0, so that t is undefined: no bounds, p of
        the exact sign test one seed   no bounds and no p no seed    nothing
    """

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # two-sided, of no difference
    effect: float | None = None  # standardized mean difference, in sd of one difference
    count: int = 0  # seeds in common
    sd: float | None = None  # of one seed's difference
    method: str = "no seed"
    level: float = LEVEL


@dataclass(frozen=True)
class Band:
    """The mean curve of some seeds with its interval at every step, point by point. One seed: low
    and high are None.
    """

    steps: list[int]
    mean: list[float]
    low: list[float] | None
    high: list[float] | None
    count: int  # seeds


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """mean +- t sd / sqrt(n), t the quantile of Student's t at n - 1 degrees of freedom (Student,
    1908).

    Raises ValueError where a value is not finite.
    """
    x = _finite(dict(enumerate(values)), "value")
    if len(x) < 2:
        return Interval(float(x[0]) if len(x) else None, None, None, len(x), None, level)
    sd = float(x.std(ddof=1))
    reach = _t(len(x), level) * sd / math.sqrt(len(x))
    return Interval(
        float(x.mean()), float(x.mean() - reach), float(x.mean() + reach), len(x), sd, level
    )


def paired(
    baseline: Mapping[int, float],
    variant: Mapping[int, float],
    level: float = LEVEL,
    *,
    scale: float | None = None,
    resamples: int = 9999,
) -> PairedDifference:
    """variant - baseline at every seed that both have: the seed is the block, so what it does to
    both drops out.

    p: the paired t test. Bounds: the same t below 20 seeds; from 20 seeds the BCa bootstrap (Efron,
    1987), which follows skewed differences. Plain BCa is too narrow for few values (it covers 92 %
    at 20 where 95 % are asked for): its level is raised so that on symmetric values it is as wide
    as the t interval (Hesterberg, 2015, arXiv:1411.5279, "expanded percentile"). The bootstrap
    draws from a fixed seed.
    effect: J d, with d = mean / sd of the differences and J = Gamma(m / 2) / (sqrt(m / 2) Gamma((m
    - 1) / 2)) at m = n - 1, which makes it unbiased (Hedges, 1981; d_z of Lakens, 2013). Undefined
    below three seeds.
    scale: the size of the figures, beside which a difference may be rounding; by default their own.
    Raises ValueError where a figure is not finite.
    """
    from scipy.stats import ttest_1samp

    seeds = sorted(baseline.keys() & variant.keys())
    before, after = (
        _finite({seed: side[seed] for seed in seeds}, "seed") for side in (baseline, variant)
    )
    x = after - before
    if not len(x):
        return PairedDifference(level=level)
    if len(x) == 1:
        return PairedDifference(float(x[0]), count=1, method="one seed", level=level)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    rounding = ROUNDING * (
        max(np.abs(before).max(), np.abs(after).max()) if scale is None else scale
    )
    if np.ptp(x) <= rounding:
        return _constant(mean if abs(mean) > rounding else 0.0, len(x), level)
    test = ttest_1samp(x, 0.0)
    (low, high), method = map(float, test.confidence_interval(level)), "t"
    if len(x) >= BOOTSTRAP_FROM:
        bounds = _bootstrap(x, level, resamples)
        if all(map(math.isfinite, bounds)):
            (low, high), method = bounds, "bootstrap"
    effect = hedges(len(x)) * mean / sd if len(x) > 2 else None
    return PairedDifference(mean, low, high, float(test.pvalue), effect, len(x), sd, method, level)


def magnitude(difference: Any) -> Estimate:
    """The size of a difference, whatever its sign."""
    mean, low, high = difference.mean, difference.low, difference.high
    return Estimate(mean, low, high) if mean >= 0 else Estimate(-mean, -high, -low)


def hedges(count: int) -> float:
    """J, by which a standardized mean difference of so many values is too large on average (Hedges,
    1981).
    """
    half = (count - 1) / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """p-values of a family, so corrected that the chance of any false alarm in it is at most alpha
    (Holm, 1979): the k-th smallest of m times m - k + 1, never below the one before it. None stays
    None and does not count.
    """
    known = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i])
    corrected: list[float | None] = [None] * len(ps)
    least = 0.0
    for rank, i in enumerate(known):
        corrected[i] = least = max(least, min(1.0, (len(known) - rank) * ps[i]))
    return corrected


def significant(p: float | None) -> bool:
    return p is not None and p <= SMALL


def equivalence(difference: PairedDifference, margin: float) -> float | None:
    """p of the hypothesis that the true difference is as large as the margin or larger, either way:
    two one-sided tests, of which the larger p counts (Schuirmann, 1987). A small p means: equal,
    for all that matters. None for fewer than two seeds.

    Raises ValueError for a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"margin: must be above 0; got {margin}.")
    sides = [beyond(difference, margin, sign) for sign in (1, -1)]
    return None if None in sides else max(side for side in sides if side is not None)


def beyond(difference: PairedDifference, margin: float, sign: int) -> float | None:
    """p of the hypothesis that `sign` times the true difference is as large as the margin or
    larger: the one-sided paired t test of (margin - sign mean) sqrt(n) / sd. With the sign of what
    is worse, a small p means: no worse, for all that matters (non-inferiority: Blackwelder, 1982).
    Without variance, where there is no t, the sign test: 2^-n if the difference lies below the
    margin, else 1. None for fewer than two seeds.
    """
    from scipy.stats import t

    if difference.count < 2:
        return None
    left = margin - sign * difference.mean
    if difference.sd == 0:
        return 2.0**-difference.count if left > 0 else 1.0
    return float(t.sf(left * math.sqrt(difference.count) / difference.sd, difference.count - 1))


def divergence(baseline: tuple[int, int], variant: tuple[int, int]) -> float:
    """p of Fisher's exact test that both diverge equally often; each a pair (runs that diverged,
    all runs). Two-sided.
    """
    from scipy.stats import fisher_exact

    return float(fisher_exact([[lost, runs - lost] for lost, runs in (baseline, variant)]).pvalue)


def band(curves: Mapping[int, tuple[Sequence[int], Sequence[float]]], level: float = LEVEL) -> Band:
    """curves: seed -> (steps, values). The interval of `interval` at every step at which all seeds
    have a finite value, so that no step compares other seeds than the next. The level holds for
    each step, not for all at once.
    """
    finite = [
        {step: value for step, value in zip(*curve, strict=True) if math.isfinite(value)}
        for curve in curves.values()
    ]
    steps = sorted(set.intersection(*map(set, finite))) if finite else []
    y = np.array([[curve[step] for step in steps] for curve in finite]).reshape(
        len(finite), len(steps)
    )
    if len(y) < 2:
        return Band(steps, y.sum(0).tolist(), None, None, len(y))
    mean, reach = y.mean(0), _t(len(y), level) * y.std(0, ddof=1) / math.sqrt(len(y))
    return Band(steps, mean.tolist(), (mean - reach).tolist(), (mean + reach).tolist(), len(y))


def _finite(values: Mapping[int, float], what: str) -> np.ndarray:
    for key, value in values.items():
        if not math.isfinite(value):
            raise ValueError(
                f"{what} {key}: {value} is no figure to compare. Leave runs that diverged out."
            )
    return np.array(list(values.values()), dtype=float)


def _t(count: int, level: float) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + level) / 2, count - 1))


def _constant(value: float, count: int, level: float) -> PairedDifference:
    """Every seed has the same difference, so that t is undefined. The sign test gives the chance
    that all signs agree.
    """
    if value == 0:
        return PairedDifference(0.0, 0.0, 0.0, 1.0, 0.0, count, 0.0, "equal", level)
    p = 2.0 ** (1 - count)
    return PairedDifference(value, p=p, count=count, sd=0.0, method="sign", level=level)


def _bootstrap(x: np.ndarray, level: float, resamples: int) -> tuple[float, float]:
    from scipy.stats import bootstrap, norm

    n = len(x)
    wider = 2 * norm.cdf(math.sqrt(n / (n - 1)) * _t(n, level)) - 1
    # A batch keeps a large study from taking gigabytes.
    found = bootstrap(
        (x,),
        np.mean,
        confidence_level=wider,
        n_resamples=resamples,
        method="BCa",
        rng=np.random.default_rng(0),
        batch=1000,
    ).confidence_interval
    return float(found.low), float(found.high)
