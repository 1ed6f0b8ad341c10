"""Statistics over a few seeds: means and paired differences with confidence intervals, curves with
bands.

Every function takes the values of finished runs. Runs that diverged have no value: the caller
leaves them out (see `count`), and `divergence_p` tests whether one variant diverges more often than
another.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95  # of all confidence intervals of a study
ALPHA = 1 - LEVEL
BOOTSTRAP_FROM = 20  # seeds
RESAMPLES = 9999  # of the bootstrap
# Differences count as equal if they differ by at most this share of the largest value.
ROUNDING = 1e-12
SIGNIFICANT_P = ALPHA + ROUNDING  # the largest p-value that is significant


class Estimate(NamedTuple):
    """A number with its confidence interval."""

    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Interval:
    """The mean of some runs with its confidence interval. One run: low, high and sd are None."""

    mean: float | None
    low: float | None
    high: float | None
    count: int  # runs
    sd: float | None  # of one run, with count - 1 in the denominator


@dataclass(frozen=True)
class Difference:
    """variant - baseline over common seeds. Values that need more seeds are None.

    method: how low, high and p were computed, one of
        t          all from the paired t test
        welch      all from Welch's t test of runs that share no seed; `count` is the smaller number
                   of runs
        constant   runs that share no seed, too few or without variance: only the mean
        bootstrap  low and high from the bootstrap, p from the paired t test
        equal      every difference is 0: low and high are 0, p is 1
        sign       all differences are the same number other than 0, so t is undefined: no low and
                   high, p from the exact sign test
        one seed   only the mean
        no seed    nothing
    """

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # two-sided, of no difference
    effect: float | None = None  # standardized mean difference, in sd of one difference
    count: int = 0  # seeds in common
    sd: float | None = None  # of one seed's difference
    method: str = "no seed"
    runs: tuple[int, int] | None = None  # of baseline and variant, if they share no seed


@dataclass(frozen=True)
class Band:
    """The mean curve over seeds with its pointwise confidence interval. One seed: low and high are
    None.
    """

    steps: list[int]
    mean: list[float]
    low: list[float] | None
    high: list[float] | None
    count: int  # seeds


def interval(values: Sequence[float]) -> Interval:
    """mean +- t sd / sqrt(n), t the quantile of Student's t at n - 1 degrees of freedom (Student,
    1908).
    """
    x = np.array(values, dtype=float)
    if len(x) < 2:
        return Interval(float(x[0]) if len(x) else None, None, None, len(x), None)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    half = _t_quantile(len(x)) * sd / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, len(x), sd)


def standard_deviation(values: Sequence[float]) -> Estimate:
    """s, with n - 1 in the denominator, and its interval sqrt((n - 1) s^2 / chi^2), with the
    quantiles of chi^2 at n - 1 degrees of freedom, for normal values. None below two values.
    """
    from scipy.stats import chi2

    if len(values) < 2:
        return Estimate(None, None, None)
    if np.ptp(values) <= ROUNDING * np.abs(values).max():
        return Estimate(0.0, 0.0, 0.0)
    sd, freedom = float(np.std(values, ddof=1)), len(values) - 1
    low, high = (sd * math.sqrt(freedom / chi2.ppf(p, freedom)) for p in (1 - ALPHA / 2, ALPHA / 2))
    return Estimate(sd, low, high)


def paired_difference(
    baseline: Mapping[int, float],
    variant: Mapping[int, float],
    *,
    scale: float | None = None,
) -> Difference:
    """Mean of variant - baseline over common seeds. The seed is the block: its effect on both
    cancels.

    p: paired t test. Interval: paired t below 20 seeds; from 20 seeds the BCa bootstrap (Efron,
    1987), which follows skewed differences. Plain BCa is too narrow for few values (at 20 values it
    covers 92 % instead of 95 %): its level is raised so that on symmetric values it is as wide as
    the t interval (Hesterberg, 2015, arXiv:1411.5279, "expanded percentile"). The bootstrap uses a
    fixed random seed.
    effect: J d, with d = mean / sd of the differences and J = Gamma(m / 2) / (sqrt(m / 2) Gamma((m
    - 1) / 2)) at m = n - 1, which makes it unbiased (Hedges, 1981; d_z of Lakens, 2013). None below
    three seeds.
    scale: magnitude of the values, relative to which differences count as rounding; by default the
    largest value. Raises ValueError if a difference is NaN.
    """
    from scipy.stats import ttest_1samp

    seeds = sorted(baseline.keys() & variant.keys())
    before, after = (
        np.array([side[seed] for seed in seeds], dtype=float) for side in (baseline, variant)
    )
    x = after - before
    if not len(x):
        return Difference()
    if len(x) == 1:
        return Difference(float(x[0]), count=1, method="one seed")
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    rounding = ROUNDING * (np.abs([before, after]).max() if scale is None else scale)
    if np.ptp(x) <= rounding:
        return _constant_difference(mean if abs(mean) > rounding else 0.0, len(x))
    test = ttest_1samp(x, 0.0, nan_policy="raise")
    (low, high), method = map(float, test.confidence_interval(LEVEL)), "t"
    if len(x) >= BOOTSTRAP_FROM:
        bounds = _bootstrap_interval(x)
        if all(map(math.isfinite, bounds)):
            (low, high), method = bounds, "bootstrap"
    effect = hedges_correction(len(x)) * mean / sd if len(x) > 2 else None
    return Difference(mean, low, high, float(test.pvalue), effect, len(x), sd, method)


def difference(baseline: Mapping[int, float], variant: Mapping[int, float]) -> Difference:
    """The paired difference; if runs share fewer than two seeds, that of all their runs."""
    common, fewest = len(baseline.keys() & variant.keys()), min(len(baseline), len(variant))
    if common > 1 or fewest == 0 or (common == 1 and fewest == 1):
        return paired_difference(baseline, variant)
    return unpaired_difference([*baseline.values()], [*variant.values()])


def unpaired_difference(baseline: Sequence[float], variant: Sequence[float]) -> Difference:
    """mean(variant) - mean(baseline), from two runs each on with Welch's t test (Welch, 1947),
    which assumes neither pairs nor equal variances. Raises ValueError if a value is NaN.
    """
    from scipy.stats import ttest_ind

    before, after = np.array(baseline, dtype=float), np.array(variant, dtype=float)
    mean, runs = float(after.mean() - before.mean()), (len(before), len(after))
    rounding = ROUNDING * max(np.abs(before).max(), np.abs(after).max())
    if min(runs) < 2 or max(np.ptp(before), np.ptp(after)) <= rounding:
        return Difference(mean, count=min(runs), method="constant", runs=runs)
    test = ttest_ind(after, before, equal_var=False, nan_policy="raise")
    low, high = map(float, test.confidence_interval(LEVEL))
    sd = math.hypot(before.std(ddof=1), after.std(ddof=1))
    p = float(test.pvalue)
    return Difference(mean, low, high, p, count=min(runs), sd=sd, method="welch", runs=runs)


def magnitude(difference: Any) -> Estimate:
    """The absolute value of a difference, with its interval."""
    mean, low, high = difference.mean, difference.low, difference.high
    return Estimate(mean, low, high) if mean >= 0 else Estimate(-mean, -high, -low)


def hedges_correction(count: int) -> float:
    """J, the factor that removes the bias of a standardized mean difference of `count` values
    (Hedges, 1981).
    """
    half = (count - 1) / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm-corrected p-values of a family, which bound the probability of any false positive in it
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
    """Whether p <= alpha; False for None."""
    return p is not None and p <= SIGNIFICANT_P


def equivalence_p(difference: Difference, margin: float) -> float | None:
    """p of the hypothesis that the absolute true difference is at least the margin: the larger p of
    two one-sided tests (TOST; Schuirmann, 1987). A small p shows equivalence. None below two seeds.
    """
    sides = [one_sided_p(difference, margin, sign) for sign in (1, -1)]
    return None if None in sides else max(sides)


def one_sided_p(difference: Difference, margin: float, sign: int) -> float | None:
    """p of the hypothesis that `sign` times the true difference is at least the margin: the
    one-sided paired t test of (margin - sign mean) sqrt(n) / sd. With the sign of a worse value, a
    small p shows non-inferiority (Blackwelder, 1982). Without variance the sign test: 2^-n if the
    difference is below the margin, else 1. None below two seeds.
    """
    from scipy.stats import t

    if difference.count < 2:
        return None
    distance = margin - sign * difference.mean
    if difference.sd == 0:
        return 2.0**-difference.count if distance > 0 else 1.0
    return float(t.sf(distance * math.sqrt(difference.count) / difference.sd, difference.count - 1))


def divergence_p(baseline: tuple[int, int], variant: tuple[int, int]) -> float:
    """Two-sided p of Fisher's exact test that both diverge equally often. Each argument: (number of
    runs that diverged, number of runs).
    """
    from scipy.stats import fisher_exact

    return float(fisher_exact([[n, runs - n] for n, runs in (baseline, variant)]).pvalue)


def band(curves: Mapping[int, tuple[Sequence[int], Sequence[float]]]) -> Band:
    """The mean curve with `interval` at every step at which all seeds have a finite value, so that
    all steps average the same seeds. The level holds for each step, not for all steps together.

    curves: seed -> (steps, values).
    """
    finite = [
        {step: value for step, value in zip(*curve, strict=True) if math.isfinite(value)}
        for curve in curves.values()
    ]
    steps = sorted(set.intersection(*map(set, finite))) if finite else []
    y = np.array([[curve[step] for step in steps] for curve in finite])
    if len(y) < 2:
        return Band(steps, y.sum(0).tolist() if len(y) else [], None, None, len(y))
    mean, half = y.mean(0), _t_quantile(len(y)) * y.std(0, ddof=1) / math.sqrt(len(y))
    return Band(steps, mean.tolist(), (mean - half).tolist(), (mean + half).tolist(), len(y))


def _t_quantile(count: int) -> float:
    """The quantile of Student's t for the interval of `count` values."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, count - 1))


def _constant_difference(value: float, count: int) -> Difference:
    """The difference if it is the same at every seed, so that t is undefined: p of the sign test,
    the probability that all signs agree.
    """
    if value == 0:
        return Difference(0.0, 0.0, 0.0, 1.0, 0.0, count, 0.0, "equal")
    p = 2.0 ** (1 - count)
    return Difference(value, p=p, count=count, sd=0.0, method="sign")


def _bootstrap_interval(x: np.ndarray) -> tuple[float, float]:
    """The BCa interval of the mean, at the level that `paired_difference` describes."""
    from scipy.stats import bootstrap, norm

    n = len(x)
    expanded_level = 2 * norm.cdf(math.sqrt(n / (n - 1)) * _t_quantile(n)) - 1
    # Batches bound the memory of a study with many seeds.
    found = bootstrap(
        (x,),
        np.mean,
        confidence_level=expanded_level,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
        batch=1000,
    ).confidence_interval
    return float(found.low), float(found.high)
