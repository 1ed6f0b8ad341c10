"""Power: which difference so many seeds detect, and how many seeds detect a difference.

Power of the two-sided paired t test at n seeds, with r = true difference / sd of one seed's
difference, by the noncentral t with n - 1 degrees of freedom and noncentrality r sqrt(n) (Cohen,
1988, chapter 2): exact for normal differences of known sd. An sd from few seeds is itself
uncertain: at 5 seeds by a factor of 0.6 to 2.9, so these are figures for planning.
"""

from bisect import bisect_left


def power_of(difference: float, sd: float, count: int, alpha: float = 0.05) -> float:
    """The chance that `count` seeds show this true difference at p <= alpha."""
    from scipy.stats import ncf, t

    # The square of a noncentral t is a noncentral F; scipy's noncentral t is NaN in its far tail,
    # its F is not.
    noncentral = count * (difference / sd) ** 2
    return float(ncf.sf(t.isf(alpha / 2, count - 1) ** 2, 1, count - 1, noncentral))


def detectable(
    sd: float | None, count: int, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest true difference that `count` seeds see with that power; None below two seeds.
    For a family of m comparisons under Holm, alpha / m is what the first of them has to pass.
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
    """The fewest seeds, at least two, that see this true difference with that power.

    Raises ValueError for a difference of 0, which no number of seeds sees.
    """
    if difference == 0:
        raise ValueError("difference: must not be 0; no number of seeds sees none.")
    high = 2
    while sd and power_of(difference, sd, high, alpha) < power:
        high *= 2
    return bisect_left(
        range(high), power, high // 2 + 1, key=lambda n: power_of(difference, sd, n, alpha)
    )
