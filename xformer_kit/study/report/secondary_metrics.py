"""Secondary metrics (study.also): means and paired differences with confidence intervals, without
tests.

A study compares its variants in one metric. Secondary metrics get no p-value and no verdict: each
test would add a chance of a false positive, and correcting for it would cost power for the primary
metric.
"""

from dataclasses import dataclass

from xformer_kit.study.metric import Metric, metric
from xformer_kit.study.results import Results
from xformer_kit.study.statistics import Difference, Interval, interval, paired_difference
from xformer_kit.study.variants import (
    VariantResult,
    runs_of,
)


@dataclass(frozen=True)
class SecondaryMetric:
    """Means of all variants, and differences from the baseline (None for the baseline)."""

    metric: Metric  # its higher_is_better has no meaning
    means: list[Interval]
    differences: list[Difference | None]


def secondary_metrics(results: Results, variants: list[VariantResult]) -> list[SecondaryMetric]:
    """Returns the means of all variants and their paired differences from the baseline, which is
    first, per metric of study.also.
    """
    found = []
    for name in dict.fromkeys(results.study.get("also") or ()):
        base, *others = (
            runs_of(v.name, results.outcomes_of(v.best.index), name).values for v in variants
        )
        found.append(
            SecondaryMetric(
                metric(name, False),
                [interval(list(values.values())) for values in (base, *others)],
                [None, *(paired_difference(base, values) for values in others)],
            )
        )
    return found
