"""Further metrics of `study.also`: means and paired differences with intervals, without verdicts.

A study compares its variants in one metric. Further ones get no p-value and no verdict: each would
be another chance of a false positive, and a correction for it would take power from the question
itself.
"""

import math
from dataclasses import dataclass

from xformer_kit.study.metric import Metric, metric
from xformer_kit.study.report.variants import MEASURED, VariantResult, metrics, require
from xformer_kit.study.results import Results
from xformer_kit.study.statistics import Interval, PairedDifference, interval, paired


@dataclass(frozen=True)
class SecondaryMetric:
    """Means of all variants, and differences to the baseline, None for the baseline itself."""

    metric: Metric  # of which no side counts as better
    means: list[Interval]
    differences: list[PairedDifference | None]


def secondary_metrics(results: Results, variants: list[VariantResult]) -> list[SecondaryMetric]:
    """Raises ConfigError for a metric that no finished run has."""
    found = []
    for name in results.study.get("also") or ():
        require(results, "also", name, [*metrics(results), *MEASURED])
        base, *others = (
            {seed: x for seed, x in results.values(v.best.index, name).items() if math.isfinite(x)}
            for v in variants
        )
        means = [interval(list(values.values())) for values in (base, *others)]
        found.append(
            SecondaryMetric(
                metric(name, False), means, [None, *(paired(base, values) for values in others)]
            )
        )
    return found
