"""Two models on the same items of a test: the difference of their mean scores with its confidence
interval, and for scores of 0 and 1 the exact test of McNemar (1947, Psychometrika 12:153-157).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xformer_kit.study.metric import Metric, format_p
from xformer_kit.study.statistics import LEVEL, RESAMPLES, significant

BATCH = 2**22  # drawn differences that exist at once


@dataclass(frozen=True)
class ItemDifference:
    """mean(first) - mean(second) over items. of_p: the test of p, `McNemar`; for other scores than
    0 and 1 p is None, and low and high are those of the paired bootstrap.
    """

    mean: float
    low: float
    high: float
    items: int
    p: float | None = None  # two-sided, of no difference
    only_first: int | None = None  # items that only the first one has right
    only_second: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the difference is significant at 5 %; without p, whether the interval excludes
        0.
        """
        return significant(self.p) if self.p is not None else self.low > 0 or self.high < 0


def item_difference(
    first: Sequence[float], second: Sequence[float], weights: Sequence[float] | None = None
) -> ItemDifference:
    """Returns the difference of the means of two lists of scores, one pair per item. weights: of
    the items in both means, such as their bytes, for other scores than 0 and 1; None: equal.

    Scores of 0 and 1: with b items that only the first has right and c that only the second has, p
    is that of the binomial test of b in b + c. The interval is the adjusted one of Wald, with one
    item more in b and in c (Bonett and Price, 2012, J. Educ. Behav. Stat. 37:479-488).
    Other scores: the percentile interval of 9,999 samples of items with replacement.
    """
    x = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    mean, n = float(np.average(x, weights=w)), len(x)
    if {*first, *second} <= {0, 1} and np.all(w == w[0]):
        return _mcnemar(mean, int((x > 0).sum()), int((x < 0).sum()), n)
    from scipy.stats import bootstrap

    if n < 2:
        return ItemDifference(mean, mean, mean, n)
    low, high = bootstrap(
        (x, w),
        lambda x, w, axis: (x * w).sum(axis) / w.sum(axis),
        paired=True,
        vectorized=True,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
        batch=max(1, BATCH // n),
    ).confidence_interval
    return ItemDifference(mean, float(low), float(high), n)


def _mcnemar(mean: float, b: int, c: int, n: int) -> ItemDifference:
    """The difference (b - c) / n of shares."""
    from scipy.stats import binomtest, norm

    if b + c == 0:
        return ItemDifference(mean, 0.0, 0.0, n, 1.0, b, c)
    center = (b - c) / (n + 2)
    variance = ((b + c + 2) / (n + 2) - center**2) / (n + 2)
    half = float(norm.ppf((1 + LEVEL) / 2)) * variance**0.5
    p = float(binomtest(b, b + c).pvalue)
    return ItemDifference(mean, center - half, center + half, n, p, b, c)


def item_sentence(
    names: tuple[str, str], task: str, metric: Metric, difference: ItemDifference
) -> str:
    """Returns the sentence on a difference, first name - second name, on one task."""
    first, second = names
    d = difference
    items = f"{d.items:,} item{'s' * (d.items != 1)}"
    if d.mean == d.low == d.high == 0:
        return f"{first} and {second} have the same {metric.name} on each of {items} of {task}."
    test = "" if d.p is None else f", McNemar {format_p(d.p)}"
    if not d.differs:
        size, interval = metric.estimate(d, signed=True)
        return (
            f"The difference between {first} and {second} on {task} is not significant:"
            f" {size} of {metric.name} (95 % CI {interval}, {items}{test})."
        )
    if metric.side(d.mean) == "worse":
        first, second = second, first
    if d.mean < 0:
        d = ItemDifference(-d.mean, -d.high, -d.low, d.items)
    size, interval = metric.estimate(d)
    return (
        f"{first} is better than {second} on {task} by {size} of {metric.name} (95 % CI {interval},"
        f" {items}{test})."
    )
