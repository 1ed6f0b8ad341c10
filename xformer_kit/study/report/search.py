"""What a search found: its best points, and what became of its trials.

Only the points that were confirmed are compared with the baseline, and only at seeds that did not
choose them: the best of many at one seed owes a part of its value to that seed, so there it would
seem better than it is.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xformer_kit.study.metric import Metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.report.variants import VariantResult
from xformer_kit.study.results import Results

ENDED = {
    "finished": "finished",
    "pruned": "ended early",
    "diverged": "diverged",
    "failed": "failed",
    "running": "under way",
}
CAUTION = (
    "The best point was chosen among all trials at the seed at which it is compared here, so it"
    " seems better than it is. Confirm it: study.design.confirm=3 and study.seeds=5."
)


@dataclass(frozen=True)
class SearchSummary:
    """`points`: every trial in its order, as the plan has them; `best`: those with a value, the
    best first.
    """

    sentences: list[str]  # the best point, as the search and as other seeds have it; all trials
    partial: str  # a sentence if trials are still to come; else empty
    caution: str  # a sentence if nothing was confirmed; else empty
    points: list[Node]
    best: list[Node]
    importance: Mapping[str, float]
    commands: dict[str, list[str]]  # name -> the overrides that train it, of the best variants


def searched(results: Results, variants: list[VariantResult]) -> SearchSummary | None:
    """None if the study is no search."""
    search, metric = results.search, results.metric
    if search is None:
        return None
    points = list(search["points"])
    best = _ranked(points, metric)
    first = [one for one in variants if best and one.label == best[0]["label"]]
    lowest = sorted((v for v in variants if v.mean is not None), key=lambda v: metric.sign * v.mean)
    chosen = [*lowest[:1], *first]
    sentences = [
        _found(search, best, metric),
        *(_confirmed(variant, metric) for variant in lowest[:1] if search["confirmed"]),
        _counted(search, points),
    ]
    return SearchSummary(
        sentences,
        _partial(search, points),
        "" if search["confirmed"] else CAUTION,
        points,
        best,
        search["importance"],
        {v.name: search["commands"][v.label] for v in chosen if v.label in search["commands"]},
    )


def _ranked(points: list[Node], metric: Metric) -> list[Node]:
    """Trials with a value, the best first."""
    return sorted(
        [point for point in points if point["value"] is not None],
        key=lambda point: metric.sign * point["value"],
    )


def compared(results: Results) -> Results:
    """The results that are compared: of a search, the baseline and the best points, at the seeds
    that chose none of them.
    """
    search = results.search
    if search is None:
        return results
    place = {variant["label"]: i for i, variant in enumerate(results.variants)}
    kept = [0, *(place[label] for label in search["confirmed"] if place.get(label))]
    chosen = [o for o in results.outcomes if o.seed != search["seed"] and o.variant in kept]
    if len(kept) == 1 or not any(one.status == "finished" for one in chosen):
        # Not confirmed: the best point, at the seed of the search.
        best = [place.get(point["label"]) for point in _ranked(search["points"], results.metric)]
        kept = [0, *filter(None, best)][:2]
        chosen = [o for o in results.outcomes if o.seed == search["seed"] and o.variant in kept]
    numbers = {p["label"]: f"trial {p['number']}" for p in search["points"] if p["number"]}
    named = results.only(kept, chosen)
    return replace(
        named,
        variants=[
            {**variant, "name": numbers.get(variant["label"], variant["label"])}
            for variant in named.variants
        ],
    )


def _confirmed(best: VariantResult, metric: Metric) -> str:
    what = best.name if best.name == best.label else f"{best.name} ({best.label})"
    value = metric.format(best.mean, 4)
    return f"Best at the other seeds: {what}, {metric.name} {value} in the mean."


def _counted(search: Node, points: list[Node]) -> str:
    count = Counter(point["status"] for point in points)
    each = [
        f"{count[status]} {words}"
        for status, words in ENDED.items()
        if count[status] or status == "finished"
    ]
    text = f"{len(points)} trials at seed {search['seed']}: {', '.join(each)}."
    if refused := search["refused"]:
        some = "1 proposal was" if refused == 1 else f"{refused} proposals were"
        text += f" {some} no valid model and replaced before anything was trained."
    if search["again"]:
        text += f" {search['again']} proposals had been tried already."
    return text + (f" {search['end']}" if search["end"] else "")


def _found(search: Node, best: list[Node], metric: Metric) -> str:
    if not best:
        return "No trial has finished yet."
    first = best[0]
    text = (
        f"Best in the search: trial {first['number']} ({first['label']}), {metric.name}"
        f" {metric.format(first['value'], 4)} at seed {search['seed']}"
    )
    base = [point for point in best[1:] if point["number"] == 0]
    return text + "".join(f" (baseline: {metric.format(p['value'], 4)})" for p in base[:1]) + "."


def _partial(search: Node, points: list[Node]) -> str:
    over = sum(point["status"] != "running" for point in points)
    if over >= search["trials"] or (search["end"] and over == len(points)):
        return ""
    return f"Partial: {over} of {search['trials']} trials are over. What follows may change."
