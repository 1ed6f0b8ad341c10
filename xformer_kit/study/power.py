"""Power analysis: the minimum detectable effect of a number of seeds, and the seeds that an effect
needs.

Power of the two-sided paired t test at n seeds, with r = true difference / sd of one seed's
difference, by the noncentral t with n - 1 degrees of freedom and noncentrality r sqrt(n) (Cohen,
1988, chapter 2). It is exact for normal differences of known sd. An sd that is estimated from 5
seeds is itself uncertain by a factor of 0.6 to 2.9, so use the results for planning only.
"""

from bisect import bisect_left


def power_of(difference: float, sd: float, count: int, alpha: float = 0.05) -> float:
    """The probability that `count` seeds give p <= alpha at this true difference."""
    from scipy.stats import ncf, t

    # The square of a noncentral t is a noncentral F. scipy's noncentral t is NaN in its far tail;
    # its noncentral F is not.
    noncentral = count * (difference / sd) ** 2
    return float(ncf.sf(t.isf(alpha / 2, count - 1) ** 2, 1, count - 1, noncentral))


def minimum_detectable_effect(
    sd: float | None, count: int, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest true difference that `count` seeds detect with this power; None below two seeds.
    For a family of m comparisons under Holm's correction, pass alpha / m, the level of the smallest
    p-value.
    """
    from scipy.optimize import brentq

    if sd is None or count < 2:
        return None
    if sd == 0:
        return 0.0
    high = 1.0
    while power_of(high, 1.0, count, alpha) < power:
        high *= 2
    return sd * float(brentq(lambda ratio: power_of(ratio, 1.0, count, alpha) - power, 0.0, high))


def seeds_needed(sd: float, difference: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """The fewest seeds, at least two, that detect this true difference with this power.

    Raises ValueError for a difference of 0, which no number of seeds detects.
    """
    if difference == 0:
        raise ValueError("difference: must not be 0; no number of seeds detects it.")
    high = 2
    while sd and power_of(difference, sd, high, alpha) < power:
        high *= 2
    return bisect_left(
        range(high), power, high // 2 + 1, key=lambda n: power_of(difference, sd, n, alpha)
    )
