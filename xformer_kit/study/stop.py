"""Which variants are not worth further seeds? Opt-in: study.stop: {after: 3, margin: 0.1}.

Behind each seed from the `after`-th to the last but one, a variant is stopped where its runs so far
show it to be worse than the baseline by more than the margin: the one-sided paired t at p <= alpha
/ looks, looks = seeds - after (Bonferroni). So a variant that is no worse than that is stopped in
at most alpha of all studies, however often one looks.

A look is at the first seeds of the study's list alone, whoever ran them and in whatever order they
ended: a study that was killed, or that two processes share, stops the same variants. Runs of later
seeds count as left out, whether they are there or not. What a claim names is never stopped: it is
asked to the end.

A variant that was stopped is not tested any more. In Holm's family it stands with p = 1, as a test
that was not passed: that can only make false alarms rarer, for it and for the others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.study.figures import Metric, metric, p_said
from xformer_kit.study.report.variants import VariantResult, variants
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Difference, paired

OVER = ("finished", "diverged", "failed")  # of which nothing more comes


@dataclass(frozen=True)
class Stopped:
    """Why a variant was stopped, and behind how many seeds."""

    seeds: int
    sentence: str  # stopped after 3 of 5 seeds: ...


def applied(results: Results) -> Results:
    """The results without what the study stopped: outcomes of seeds behind it are left out,
    whatever became of them.
    """
    found, order = decided(results), seeds(results)
    if not found:
        return results

    def kept(one: Outcome) -> Outcome:
        gone = found.get(results.variants[one.variant]["label"])
        if gone is None or one.seed in order[: gone.seeds]:
            return one
        return Outcome(one.variant, one.seed, one.key, "left out", one.directory, why=gone.sentence)

    stopped = {label: gone.sentence for label, gone in found.items()}
    return replace(results, outcomes=[kept(one) for one in results.outcomes], stopped=stopped)


def decided(results: Results) -> dict[str, Stopped]:
    """Label -> why it was stopped, of every variant that was. Empty without study.stop."""
    node = results.study.get("stop")
    if not node:
        return {}
    order, measured = (
        seeds(results),
        metric(results.study["metric"], results.study.get("higher_is_better")),
    )
    margin = node["margin"] if node["margin"] is not None else results.study.get("margin") or 0.0
    looks, found = range(node["after"], len(order)), dict[str, Stopped]()
    for count in looks:
        part = replace(
            results, outcomes=[one for one in results.outcomes if one.seed in order[:count]]
        )
        open_ = {
            results.variants[one.variant]["label"]
            for one in part.outcomes
            if one.status not in OVER
        }
        never = exempt(results) | open_ | found.keys()
        if _base(results) in open_ or all(v["label"] in never for v in results.variants):
            continue
        base, *others = variants(part, measured)
        for arm in others:
            d = paired(base.runs.values, arm.runs.values)
            p = worse(d, margin, measured)
            if (
                arm.label not in never
                and p is not None
                and p <= threshold(node["alpha"], len(looks))
            ):
                of = f"look {count - looks.start + 1} of {len(looks)}"
                sentence = _sentence(arm, base, d, p, margin, measured, (count, len(order)), of)
                found[arm.label] = Stopped(count, sentence)
    return found


def threshold(alpha: float, looks: int) -> float:
    """What p has to pass at each of so many looks, for all of them together to err in at most alpha
    (Bonferroni).
    """
    return alpha / looks


def worse(d: Difference, margin: float, measured: Metric) -> float | None:
    """One-sided p of a true difference that is no worse than the margin: t = (mean - margin)
    sqrt(n) / sd, the mean counted towards the worse. Without variance, where there is no t, 2^-n by
    the sign test; None for fewer than two seeds.
    """
    from scipy.stats import t

    if d.count < 2:
        return None
    mean = -d.mean if measured.higher_is_better else d.mean
    if not d.sd:
        return 0.5**d.count if mean > margin else 1.0
    return float(t.sf((mean - margin) / d.sd * math.sqrt(d.count), d.count - 1))


def waiting(results: Results) -> set[str]:
    """Keys of runs that an earlier seed may still spare: one of their variant's or of the
    baseline's is not over.
    """
    node, order = results.study.get("stop"), seeds(results)
    if not node:
        return set()
    first: dict[str, int] = {}  # label -> place of the first seed at which something is not over
    for one in results.outcomes:
        if one.status not in OVER:
            label = results.variants[one.variant]["label"]
            first[label] = min(first.get(label, len(order)), order.index(one.seed))
    base, never, found = _base(results), exempt(results), set[str]()
    for one in results.outcomes:
        label, place = results.variants[one.variant]["label"], order.index(one.seed)
        late = (
            place >= node["after"] and min(first.get(label, place), first.get(base, place)) < place
        )
        if late and label not in never:
            found.add(one.key)
    return found


def exempt(results: Results) -> set[str]:
    """Labels that are never stopped: the baseline's, and those of the claim."""
    expect = (results.study.get("claim") or {}).get("expect") or []
    named = {
        one.get(key)
        for one in ([expect] if isinstance(expect, Mapping) else expect)
        for key in ("variant", "than")
    }
    return {
        _base(results),
        *(v["label"] for v in results.variants if named & {v["label"], v["name"]}),
    }


def seeds(results: Results) -> list[int]:
    """In the study's order."""
    return list(dict.fromkeys(one.seed for one in results.outcomes))


def notes(results: Results) -> list[str]:
    """What a reader has to know of a study that stops variants."""
    node: Any = results.study.get("stop")
    if not node:
        return []
    count = len(seeds(results))
    return [
        f"Variants were to be stopped behind {node['after']} to {count - 1} of {count} seeds, where"
        " the one-sided paired t showed them worse than the margin; one that is not is stopped in"
        f" at most {100 * node['alpha']:g} % of such studies. The difference of one that was"
        " stopped is that of seeds that spoke against it, so it is too large on average, and no"
        f" test is made of it. Stopped: {', '.join(results.stopped) or 'none'}."
    ]


def _base(results: Results) -> str:
    return results.variants[0]["label"]


def _sentence(
    arm: VariantResult,
    base: VariantResult,
    d: Difference,
    p: float,
    margin: float,
    measured: Metric,
    seen: tuple[int, int],
    look: str,
) -> str:
    beyond = f", beyond the margin of {measured.as_given(margin)}," if margin else ""
    how = f"one-sided {'t' if d.sd else 'sign test'}, {p_said(p)}, {look}"
    return (
        f"{arm.name} was stopped after {seen[0]} of {seen[1]} seeds: it was worse than {base.name}"
        f" by {measured.said(abs(d.mean))}{beyond} in {d.count} of them ({how})."
    )
