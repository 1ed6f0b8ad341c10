"""Which runs stand for a variant? With `tune`, those at its own best point."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.registry import ConfigError, nearest
from xformer_kit.study.answer import Runs, Verdict
from xformer_kit.study.figures import Metric
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Interval, interval


@dataclass(frozen=True)
class Point:
    """One entry of the plan: a variant, with `tune` at one of its points."""

    index: int  # among the plan's variants
    tuned: tuple[str, ...]  # optim.lr=0.001
    runs: Runs
    interval: Interval

    @property
    def said(self) -> str:
        return " ".join(self.tuned)


@dataclass(frozen=True)
class Arm:
    """A variant as it is compared. `verdict` is None for the baseline."""

    name: str
    label: str
    levels: Mapping[str, str]
    words: tuple[str, ...]  # overrides of its levels
    knob: tuple[str, ...]  # what the budget turned
    off: float  # share by which it misses the budget
    best: Point
    points: tuple[Point, ...]  # of the tuning; one where there is none
    cost: Mapping[str, float | None]
    verdict: Verdict | None = None

    @property
    def runs(self) -> Runs:
        return self.best.runs


PLANNED = ("params", "flops", "tokens", "steps")
MEASURED = ("tokens_per_second", "peak_memory_bytes", "seconds")


def arms(results: Results, measured: Metric) -> list[Arm]:
    """The variants, the baseline first. Raises ConfigError where no finished run has the metric."""
    _has(results, measured.name)
    groups: dict[str, list[int]] = {}
    for index, variant in enumerate(results.variants):
        groups.setdefault(variant["label"], []).append(index)
    return [_arm(results, indices, measured) for indices in groups.values()]


def _arm(results: Results, indices: list[int], measured: Metric) -> Arm:
    points = tuple(_point(results, index, measured) for index in indices)
    best = min(points, key=lambda point: _rank(point, measured))
    variant = results.variants[best.index]
    return Arm(
        variant["name"],
        variant["label"],
        variant["levels"],
        tuple(variant["words"]),
        tuple(variant["knob"]),
        variant["off"],
        best,
        points,
        _cost(variant.get("cost") or {}, results.of(best.index)),
    )


def _rank(point: Point, measured: Metric) -> tuple[bool, int, float]:
    """Lower is better. A point at which runs diverge has a mean of the lucky seeds alone, so it
    comes after those at which fewer do; one without any figure comes last.
    """
    mean = point.interval.mean
    if mean is None:
        return True, 0, 0.0
    return False, len(point.runs.diverged), -mean if measured.higher_is_better else mean


def _point(results: Results, index: int, measured: Metric) -> Point:
    variant = results.variants[index]
    runs = runs_of(variant["name"], results.of(index), measured.name)
    runs = replace(runs, stopped=results.stopped.get(variant["label"], ""))
    return Point(index, tuple(variant["tuned"]), runs, interval(list(runs.values.values())))


def runs_of(name: str, outcomes: list[Outcome], metric: str) -> Runs:
    """A figure that is not finite is no figure to compare: that run diverged at its last step."""
    values: dict[int, float] = {}
    diverged: dict[int, int] = {}
    failed, unfinished, left_out = [], [], []
    for one in outcomes:
        value = one.facts.get(metric)
        if one.status == "diverged":
            diverged[one.seed] = one.step or 0
        elif one.status == "left out":
            left_out.append(one.seed)
        elif one.status == "failed" or (
            one.status == "finished" and not isinstance(value, (int, float))
        ):
            failed.append(one.seed)
        elif one.status != "finished":
            unfinished.append(one.seed)
        elif math.isfinite(value):
            values[one.seed] = float(value)
        else:
            diverged[one.seed] = one.step or 0
    return Runs(name, values, diverged, unfinished, failed, left_out)


def _cost(planned: Mapping[str, Any], outcomes: list[Outcome]) -> dict[str, float | None]:
    """What the plan counted, and what finished runs measured: means, of memory the most."""
    found: dict[str, float | None] = {name: planned.get(name) for name in PLANNED}
    for name in MEASURED:
        each = [one.facts.get(name) for one in outcomes if one.status == "finished"]
        known = [float(value) for value in each if value]
        join = max if name == "peak_memory_bytes" else statistics.fmean
        found[name] = join(known) if known else None
    return found


def _has(results: Results, metric: str) -> None:
    """A metric that no run has is a typing error, not a study without figures."""
    finished = [one for one in results.outcomes if one.status == "finished"]
    if not finished or any(metric in one.facts for one in finished):
        return
    known = metrics(results)
    raise ConfigError(
        [
            f"study.metric: no finished run has '{metric}'.{nearest(metric, known)} "
            f"They have: {', '.join(known) or 'none'}."
        ]
    )


def metrics(results: Results) -> list[str]:
    """The final metrics of finished runs, in the order of their names."""
    return sorted(
        {
            name
            for one in results.outcomes
            for name, value in one.facts.items()
            if "/" in name and isinstance(value, (int, float))
        }
    )
