"""Results of a search: its best points and its trials.

Only confirmed points are compared with the baseline, and only at seeds that the search did not use:
at the seed of the search, the value of the best of many trials is biased by selection.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xformer_kit.study.metric import Metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.results import Results
from xformer_kit.study.variants import VariantResult

STATUSES = ("finished", "pruned", "diverged", "failed", "running")
CAUTION = (
    "The best point was selected at the same seed at which it is compared here, so its difference"
    " to the baseline is biased. Confirm it: study.design.confirm=3 and study.seeds=5."
)


@dataclass(frozen=True)
class SearchSummary:
    """points: all trials in order, as in plan.json; best: those with a value, the best first."""

    sentences: list[str]  # on the best trial, the best confirmed point and the number of trials
    partial: str  # a sentence if trials are missing; else empty
    caution: str  # a sentence if no point was confirmed; else empty
    points: list[Node]
    best: list[Node]
    importance: Mapping[str, float]
    commands: dict[str, list[str]]  # name of a best variant -> overrides that train it


def search_summary(results: Results, variants: list[VariantResult]) -> SearchSummary | None:
    """The summary of a search; None for other designs."""
    search, metric = results.search, results.metric
    if search is None:
        return None
    points = list(search["points"])
    best = _best_first(points, metric)
    first = [one for one in variants if best and one.label == best[0]["label"]]
    lowest = sorted((v for v in variants if v.mean is not None), key=lambda v: metric.sign * v.mean)
    chosen = [*lowest[:1], *first]
    return SearchSummary(
        [
            _best_trial_sentence(search, best, metric),
            *(
                _confirmed_sentence(variant, metric)
                for variant in lowest[:1]
                if search["confirmed"]
            ),
            _trial_counts(search, points),
        ],
        _partial_sentence(search, points),
        "" if search["confirmed"] else CAUTION,
        points,
        best,
        search["importance"],
        {v.name: search["commands"][v.label] for v in chosen if v.label in search["commands"]},
    )


def _best_first(points: list[Node], metric: Metric) -> list[Node]:
    """Trials with a value, the best first."""
    return sorted(
        [point for point in points if point["value"] is not None],
        key=lambda point: metric.sign * point["value"],
    )


def confirmation_results(results: Results) -> Results:
    """The results that are compared: of a search, the baseline and the confirmed points at the
    seeds that the search did not use; of other designs, all.
    """
    search = results.search
    if search is None:
        return results
    index = {variant["label"]: i for i, variant in enumerate(results.variants)}
    kept = [0, *(index[label] for label in search["confirmed"] if index.get(label))]
    chosen = [o for o in results.outcomes if o.seed != search["seed"] and o.variant in kept]
    if len(kept) == 1 or not any(one.status == "finished" for one in chosen):
        # Not confirmed: the best trial at the seed of the search.
        best = [
            index.get(point["label"]) for point in _best_first(search["points"], results.metric)
        ]
        kept = [0, *filter(None, best)][:2]
        chosen = [o for o in results.outcomes if o.seed == search["seed"] and o.variant in kept]
    numbers = {p["label"]: f"trial {p['number']}" for p in search["points"] if p["number"]}
    found = results.select_variants(kept, chosen)
    return replace(
        found,
        variants=[
            {**variant, "name": numbers.get(variant["label"], variant["label"])}
            for variant in found.variants
        ],
    )


def _confirmed_sentence(best: VariantResult, metric: Metric) -> str:
    name = best.name if best.name == best.label else f"{best.name} ({best.label})"
    return f"Best at the other seeds: {name}, mean {metric.name} {metric.format(best.mean, 4)}."


def _trial_counts(search: Node, points: list[Node]) -> str:
    """The sentence on how many trials ended in which way."""
    count = Counter(point["status"] for point in points)
    each = [
        f"{count[status]} {status}" for status in STATUSES if count[status] or status == "finished"
    ]
    text = f"{len(points)} trials at seed {search['seed']}: {', '.join(each)}."
    if refused := search["refused"]:
        proposals = "1 proposal was" if refused == 1 else f"{refused} proposals were"
        text += f" {proposals} an invalid model and replaced before training."
    if search["again"]:
        text += f" {search['again']} proposals were duplicates."
    return text + (f" {search['end']}" if search["end"] else "")


def _best_trial_sentence(search: Node, best: list[Node], metric: Metric) -> str:
    if not best:
        return "No trial has finished yet."
    first = best[0]
    text = (
        f"Best in the search: trial {first['number']} ({first['label']}), {metric.name}"
        f" {metric.format(first['value'], 4)} at seed {search['seed']}"
    )
    base = [point for point in best[1:] if point["number"] == 0]
    return text + "".join(f" (baseline: {metric.format(p['value'], 4)})" for p in base[:1]) + "."


def _partial_sentence(search: Node, points: list[Node]) -> str:
    """The sentence on missing trials; empty if there are none."""
    over = sum(point["status"] != "running" for point in points)
    if over >= search["trials"] or (search["end"] and over == len(points)):
        return ""
    return f"Partial: {over} of {search['trials']} trials have ended. Results may change."
