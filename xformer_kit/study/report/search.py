"""What did a search find? Its best points, how it came to them, what counted, and what was given up
on the way.

Only the points that were confirmed are compared with the baseline, and only at seeds of which the
search knew nothing: the best of many at one seed owes a part of its figure to that seed, so there
it would seem better than it is.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.study.figures import Metric
from xformer_kit.study.report.arms import Arm
from xformer_kit.study.results import Results

ENDED = {
    "finished": "finished",
    "pruned": "ended early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}


@dataclass(frozen=True)
class Search:
    """`points`: every trial in its order, as the plan has them; `best`: places among them, the best
    first.
    """

    sentence: str  # how many trials, and what became of them
    found: str  # the best point, as the search saw it
    partial: str  # a sentence where trials are still to come; empty where none are
    caution: str  # where nothing was confirmed
    points: list[Mapping[str, Any]]
    best: list[int]
    importance: Mapping[str, float]
    commands: Mapping[str, list[str]]  # label -> the overrides that train it

    def chosen(self, arms: list[Arm], measured: Metric) -> dict[str, list[str]]:
        """Name -> overrides of the arm with the best mean, the baseline among them, and of the best
        point of the search.
        """
        first = self.points[self.best[0]]["label"] if self.best else None
        best = [*_lowest(arms, measured), *(arm for arm in arms if arm.label == first)]
        return {arm.name: self.commands[arm.label] for arm in best if arm.label in self.commands}

    def confirmed(self, arms: list[Arm], measured: Metric) -> str:
        """Which point has the best mean at the seeds that chose none; empty where none was run
        there.
        """
        if self.caution or not (best := _lowest(arms, measured)):
            return ""
        (arm,) = best
        what = arm.name if arm.name == arm.label else f"{arm.name} ({arm.label})"
        return (
            f"Best at the other seeds: {what}, {measured.name}"
            f" {measured.said(arm.best.interval.mean, 4)} in the mean."
        )


def _lowest(arms: list[Arm], measured: Metric) -> list[Arm]:
    """The arm with the best mean, if any has one."""
    sign = -1 if measured.higher_is_better else 1
    known = [
        (sign * mean, i)
        for i, arm in enumerate(arms)
        if (mean := arm.best.interval.mean) is not None
    ]
    return [arms[min(known)[1]]] if known else []


def searched(results: Results, measured: Metric) -> Search | None:
    """None where the study is no search."""
    said = results.search
    if said is None:
        return None
    points = list(said["points"])
    sign = -1 if measured.higher_is_better else 1
    done = [i for i, point in enumerate(points) if point["value"] is not None]
    best = sorted(done, key=lambda i: (sign * points[i]["value"], i))
    return Search(
        sentence=_counted(said, points),
        found=_found(said, points, best, measured),
        partial=_partial(said, points),
        caution="" if said["confirmed"] else CAUTION,
        points=points,
        best=best,
        importance=said["importance"],
        commands=said["commands"],
    )


CAUTION = (
    "The best point was chosen among all trials at the seed at which it is compared here, so it"
    " seems better than it is. Confirm it: study.design.confirm=3 and study.seeds=5."
)


def compared(results: Results, measured: Metric) -> Results:
    """The results that are compared: of a search, the baseline and the best points, at the seeds
    that chose none of them.
    """
    said = results.search
    if said is None:
        return results
    place = {variant["label"]: i for i, variant in enumerate(results.variants)}
    kept = [0, *(place[label] for label in said["confirmed"] if place.get(label))]
    chosen = [one for one in results.outcomes if one.seed != said["seed"] and one.variant in kept]
    if len(kept) == 1 or not any(
        one.status == "finished" for one in chosen
    ):  # not confirmed: as the search saw the best
        sign = -1 if measured.higher_is_better else 1
        value = {
            place[p["label"]]: p["value"]
            for p in said["points"]
            if p["value"] is not None and place.get(p["label"])
        }
        kept = [0, *sorted(value, key=lambda i: sign * value[i])[:1]]
        chosen = [
            one for one in results.outcomes if one.seed == said["seed"] and one.variant in kept
        ]
    now = {old: new for new, old in enumerate(kept)}
    outcomes = [replace(one, variant=now[one.variant]) for one in chosen]
    number = {
        point["label"]: f"trial {point['number']}" for point in said["points"] if point["number"]
    }
    named: list[Mapping[str, Any]] = [
        dict(results.variants[i])
        | {"name": number.get(label := results.variants[i]["label"], label)}
        for i in kept
    ]
    return replace(results, variants=named, outcomes=outcomes)


def _counted(said: Mapping[str, Any], points: list[Mapping[str, Any]]) -> str:
    count = Counter(point["status"] for point in points)
    each = [
        f"{count[status]} {word}"
        for status, word in ENDED.items()
        if count[status] or status == "finished"
    ]
    text = f"{len(points)} trials at seed {said['seed']}: {', '.join(each)}."
    if said["refused"]:
        some = "1 proposal was" if said["refused"] == 1 else f"{said['refused']} proposals were"
        text += f" {some} no valid model and replaced before anything was trained."
    if said["again"]:
        text += f" {said['again']} proposals had been tried already."
    return text + (f" {said['end']}" if said["end"] else "")


def _found(
    said: Mapping[str, Any], points: list[Mapping[str, Any]], best: list[int], measured: Metric
) -> str:
    if not best:
        return "No trial has finished yet."
    first = points[best[0]]
    value = measured.said(first["value"], 4)
    text = (
        f"Best in the search: trial {first['number']} ({first['label']}), {measured.name} {value}"
        f" at seed {said['seed']}"
    )
    base = next(
        (point for point in points if point["number"] == 0 and point["value"] is not None), None
    )
    if base is not None and base is not first:
        text += f" (baseline: {measured.said(base['value'], 4)})"
    return f"{text}."


def _partial(said: Mapping[str, Any], points: list[Mapping[str, Any]]) -> str:
    over = sum(point["status"] != "running" for point in points)
    if over >= said["trials"] or (said["end"] and over == len(points)):
        return ""
    return f"Partial: {over} of {said['trials']} trials are over. What follows may change."
