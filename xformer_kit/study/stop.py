"""Stopping of variants that are not worth further seeds. Opt-in: study.stop: {after: 3, margin:
0.1}.

Behind each seed from the `after`-th to the last but one, a variant is stopped where its runs so far
show it to be worse than the baseline by more than the margin: the one-sided paired t at p <= alpha
/ looks, looks = seeds - after (Bonferroni). So a variant that is no worse than that is stopped in
at most alpha of all studies, however often one looks.

A look is at the first seeds of the study's list only, whoever ran them and in whatever order they
ended: a study that was killed, or that two processes share, stops the same variants. Runs of later
seeds count as left out, whether they are there or not. What a claim names is never stopped: it is
asked to the end.

A variant that was stopped is not tested any more. In Holm's family it stands with p = 1, as a test
that was not passed: that can only make false alarms rarer, for it and for the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.study.metric import Metric, format_p
from xformer_kit.study.report.variants import variants
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import PairedDifference, beyond, paired

OVER = ("finished", "diverged", "failed")  # of which nothing more comes


@dataclass(frozen=True)
class StoppedVariant:
    """Why a variant was stopped, and after how many seeds."""

    seeds: int
    sentence: str  # stopped after 3 of 5 seeds: ...


def applied(results: Results) -> Results:
    """The results without what the study stopped: outcomes of later seeds are left out, whatever
    became of them.
    """
    found, order = decided(results), results.seeds
    if not found:
        return results

    def kept(one: Outcome) -> Outcome:
        stopped = found.get(results.label(one))
        if stopped is None or one.seed in order[: stopped.seeds]:
            return one
        return Outcome(
            one.variant, one.seed, one.key, "left out", one.directory, why=stopped.sentence
        )

    return replace(
        results,
        outcomes=[kept(one) for one in results.outcomes],
        stopped={label: stopped.sentence for label, stopped in found.items()},
    )


def decided(results: Results) -> dict[str, StoppedVariant]:
    """Label -> why it was stopped, of every variant that was. Empty without study.stop."""
    node = results.study.get("stop")
    found: dict[str, StoppedVariant] = {}
    if not node:
        return found
    order, never = results.seeds, exempt(results)
    margin, p_most = _margin(results), threshold(node["alpha"], len(order) - node["after"])
    for count in range(node["after"], len(order)):
        outcomes = [one for one in results.outcomes if one.seed in order[:count]]
        unfinished = {results.label(one) for one in outcomes if one.status not in OVER}
        left = {one["label"] for one in results.variants} - never - unfinished - found.keys()
        if _base(results) in unfinished or not left:
            continue
        base, *others = variants(replace(results, outcomes=outcomes), results.metric)
        for variant in others:
            d = paired(base.runs.values, variant.runs.values)
            p = worse(d, margin, results.metric)
            if variant.label in left and p is not None and p <= p_most:
                sentence = _sentence(variant.name, base.name, count, d, p, results)
                found[variant.label] = StoppedVariant(count, sentence)
    return found


def _margin(results: Results) -> float:
    margin = results.study["stop"]["margin"]
    return margin if margin is not None else results.study.get("margin") or 0.0


def threshold(alpha: float, looks: int) -> float:
    """What p has to pass at each of so many looks, for all of them together to err in at most alpha
    (Bonferroni).
    """
    return alpha / looks


def worse(d: PairedDifference, margin: float, measured: Metric) -> float | None:
    """One-sided p of a true difference that is no worse than the margin; None for fewer than two
    seeds.
    """
    return beyond(d, -margin, -measured.sign)


def waiting(results: Results) -> set[str]:
    """Keys of runs that an earlier seed may still spare: one of their variant's or of the
    baseline's is not over.
    """
    node, order = results.study.get("stop"), results.seeds
    if not node:
        return set()
    first: dict[str, int] = {}  # label -> place of the first seed at which something is not over
    for one in results.outcomes:
        if one.status not in OVER:
            label, place = results.label(one), order.index(one.seed)
            first[label] = min(first.get(label, place), place)
    of_base, never = first.get(_base(results), len(order)), exempt(results)
    return {
        one.key
        for one in results.outcomes
        for label, place in [(results.label(one), order.index(one.seed))]
        if place >= node["after"]
        and min(first.get(label, place), of_base) < place
        and label not in never
    }


def exempt(results: Results) -> set[str]:
    """Labels that are never stopped: the baseline's, and those of the claim."""
    expect = results.claim.get("expect") or []
    each = [expect] if isinstance(expect, Mapping) else expect
    named = {one.get(key) for one in each for key in ("variant", "than")}
    return {
        _base(results),
        *(v["label"] for v in results.variants if named & {v["label"], v["name"]}),
    }


def notes(results: Results) -> list[str]:
    """What a reader has to know of a study that stops variants."""
    node: Any = results.study.get("stop")
    if not node:
        return []
    count = len(results.seeds)
    return [
        f"Variants were to be stopped after {node['after']} to {count - 1} of {count} seeds, where"
        " the one-sided paired t showed them worse than the margin; one that is not is stopped in"
        f" at most {100 * node['alpha']:g} % of such studies. The difference of one that was"
        " stopped is that of seeds that spoke against it, so it is too large on average, and no"
        f" test is made of it. Stopped: {', '.join(results.stopped) or 'none'}."
    ]


def _base(results: Results) -> str:
    return results.variants[0]["label"]


def _sentence(
    name: str, base: str, count: int, d: PairedDifference, p: float, results: Results
) -> str:
    metric, margin, seeds = results.metric, _margin(results), len(results.seeds)
    after = results.study["stop"]["after"]
    beyond = f", beyond the margin of {metric.as_given(margin)}," if margin else ""
    look = f"look {count - after + 1} of {seeds - after}"
    how = f"one-sided {'t' if d.sd else 'sign test'}, {format_p(p)}, {look}"
    return (
        f"{name} was stopped after {count} of {seeds} seeds: it was worse than {base} by"
        f" {metric.format(abs(d.mean))}{beyond} in {d.count} of them ({how})."
    )
