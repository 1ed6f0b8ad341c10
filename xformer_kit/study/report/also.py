"""What else was measured? Further metrics of `study.also`: means and paired differences with
intervals, and no verdict.

A study asks its question of one metric. Of further ones neither a p nor a verdict is given: each
would be another chance to see what is not there, and a correction for it would take power from the
question itself.
"""

import math
from dataclasses import dataclass

from xformer_kit.registry import ConfigError, nearest
from xformer_kit.study.figures import Metric, metric
from xformer_kit.study.report.arms import MEASURED, Arm, metrics
from xformer_kit.study.results import Results
from xformer_kit.study.statistics import Difference, Interval, interval, paired


@dataclass(frozen=True)
class Also:
    """One further metric: of every arm its mean, and of all but the baseline the difference to
    it.
    """

    metric: Metric  # of which no side counts as better
    means: list[Interval]
    differences: list[Difference | None]  # None for the baseline


def also(results: Results, arms: list[Arm]) -> list[Also]:
    """Raises ConfigError for a metric that no finished run has."""
    names = list(results.study.get("also") or ())
    finished = [one.facts for one in results.outcomes if one.status == "finished"]
    for name in names:
        if finished and not any(name in facts for facts in finished):
            known = [*metrics(results), *MEASURED]
            raise ConfigError(
                f"study.also: no finished run has '{name}'.{nearest(name, known)} They have:"
                f" {', '.join(known)}."
            )
    return [_one(name, results, arms) for name in names]


def _one(name: str, results: Results, arms: list[Arm]) -> Also:
    values = [
        {seed: x for seed, x in results.values(arm.best.index, name).items() if math.isfinite(x)}
        for arm in arms
    ]
    differences = [paired(values[0], mine) for mine in values[1:]]
    return Also(
        metric(name, higher_is_better=False),
        [interval(list(mine.values())) for mine in values],
        [None, *differences],
    )
