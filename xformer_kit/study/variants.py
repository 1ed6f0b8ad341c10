"""The results of each variant; with `tune`, at its own best point."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xformer_kit.study.answer import Runs, Verdict
from xformer_kit.study.metric import Metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Interval, interval

PLANNED = ("params", "flops", "tokens", "steps")
MEASURED = ("tokens_per_second", "peak_memory_bytes", "seconds")


@dataclass(frozen=True)
class TuningPoint:
    """One entry of the plan: a variant at one point of `tune`."""

    index: int  # in the plan's variants
    tuned: tuple[str, ...]  # optim.lr=0.001
    runs: Runs
    interval: Interval


@dataclass(frozen=True)
class VariantResult:
    """A variant at its best point. `verdict` is None for the baseline."""

    name: str
    label: str
    levels: Mapping[str, str]
    words: Sequence[str]  # overrides of its levels
    knob: Sequence[str]  # overrides that match the budget
    off: float  # relative difference from the budget
    best: TuningPoint
    points: tuple[TuningPoint, ...]  # one point without tuning
    cost: Mapping[str, float | None]
    verdict: Verdict | None = None

    @property
    def runs(self) -> Runs:
        return self.best.runs

    @property
    def mean(self) -> float | None:
        return self.best.interval.mean

    @property
    def full_name(self) -> str:
        """The name with the best tuning."""
        return " ".join((self.name, *self.best.tuned))

    @property
    def overrides(self) -> str:
        """All overrides of the variant, without rung and seed."""
        return " ".join((*self.words, *self.best.tuned, *self.knob))

    def relative(self, baseline: "VariantResult", cost: str) -> float | None:
        """Relative difference of a cost to the baseline's; None if unknown."""
        own, reference = self.cost[cost], baseline.cost[cost]
        return own / reference - 1 if own is not None and reference else None


def variant_results(results: Results, metric: Metric) -> list[VariantResult]:
    """Returns the result of each variant at its best tuning point, the baseline first."""
    groups: dict[str, list[int]] = {}
    for index, variant in enumerate(results.variants):
        groups.setdefault(variant["label"], []).append(index)
    return [_variant_result(results, indices, metric) for indices in groups.values()]


def _variant_result(results: Results, indices: list[int], metric: Metric) -> VariantResult:
    """The result of one variant, from the plan's entries of its tuning points."""
    points = tuple(_tuning_point(results, index, metric) for index in indices)
    best = min(points, key=lambda point: _sort_key(point, metric))
    plan = results.variants[best.index]
    kept = {key: plan[key] for key in ("name", "label", "levels", "words", "knob", "off")}
    return VariantResult(
        **kept,
        best=best,
        points=points,
        cost=_mean_cost(plan.get("cost") or {}, results.outcomes_of(best.index)),
    )


def _sort_key(point: TuningPoint, metric: Metric) -> tuple[bool, int, float]:
    """Sort key; lower is better. Points with more diverged runs come later, because their mean
    covers only the other seeds; points without a mean come last.
    """
    mean = point.interval.mean
    return mean is None, len(point.runs.diverged) * (mean is not None), metric.sign * (mean or 0.0)


def _tuning_point(results: Results, index: int, metric: Metric) -> TuningPoint:
    variant = results.variants[index]
    runs = runs_of(
        variant["name"],
        results.outcomes_of(index),
        metric.name,
        results.stopped.get(variant["label"], ""),
    )
    return TuningPoint(index, tuple(variant["tuned"]), runs, interval(list(runs.values.values())))


def runs_of(name: str, outcomes: list[Outcome], metric: str, stopped: str = "") -> Runs:
    """The runs of a variant. A finished run without the metric counts as failed; one whose metric
    is not finite counts as diverged.
    """
    values: dict[int, float] = {}
    diverged: dict[int, int] = {}
    others: dict[str, list[int]] = {"failed": [], "left out": [], "unfinished": []}
    for one in outcomes:
        value, status = one.facts.get(metric), one.status
        if status == "finished" and not isinstance(value, (int, float)):
            status = "failed"
        if status == "finished" and math.isfinite(value):
            values[one.seed] = float(value)
        elif status in ("finished", "diverged"):
            diverged[one.seed] = one.step or 0
        else:
            others.get(status, others["unfinished"]).append(one.seed)
    failed, left_out, unfinished = others.values()
    return Runs(name, values, diverged, unfinished, failed, left_out, stopped)


def _mean_cost(planned: Node, outcomes: list[Outcome]) -> dict[str, float | None]:
    """The plan's counts, and means over finished runs of what they measured (maximum of memory)."""
    found: dict[str, float | None] = {name: planned.get(name) for name in PLANNED}
    for name in MEASURED:
        each = [one.facts.get(name) for one in outcomes if one.status == "finished"]
        known = [float(value) for value in each if value]
        reduce = max if name == "peak_memory_bytes" else statistics.fmean
        found[name] = reduce(known) if known else None
    return found


def metric_names(results: Results) -> list[str]:
    """Names of the final metrics of finished runs, sorted."""
    return sorted(
        {
            name
            for one in results.outcomes
            for name, value in one.facts.items()
            if "/" in name and isinstance(value, (int, float))
        }
    )
