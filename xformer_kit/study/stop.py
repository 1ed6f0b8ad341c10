"""Early stopping of variants that are significantly worse. Opt-in: study.stop: {after: 3, margin:
0.1}.

After each seed from the `after`-th to the last but one, a variant is stopped if it is significantly
worse than the baseline by more than the margin: one-sided paired t test at p <= alpha / looks, with
looks = seeds - after (Bonferroni). A variant that is not worse by more than the margin is stopped
in at most alpha of all studies.

A look uses only the first seeds of the study's list, independent of which process ran them and of
the order in which they ended. So a study that was killed, or that two processes share, stops the
same variants. Runs of later seeds count as left out, whether they exist or not. Variants of a claim
are never stopped.

A variant that was stopped is not tested at the end. In Holm's family it counts with p = 1, as a
test that is not significant, which can only lower the rate of false positives.
"""

from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.study.claim import expectations
from xformer_kit.study.metric import format_p
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Difference, one_sided_p, paired_difference
from xformer_kit.study.variants import variant_results

FINAL_STATUSES = ("finished", "diverged", "failed")  # final statuses


@dataclass(frozen=True)
class StoppedVariant:
    """A variant that was stopped, after how many seeds, and the sentence on it."""

    seeds: int
    sentence: str  # stopped after 3 of 5 seeds: ...


def apply_stopping_rule(results: Results) -> Results:
    """The results with the stopping rule applied: outcomes of a stopped variant's later seeds have
    the status "left out".
    """
    found, order = stopped_variants(results), results.seeds
    if not found:
        return results

    def with_stop(one: Outcome) -> Outcome:
        stopped = found.get(results.label(one))
        if stopped is None or one.seed in order[: stopped.seeds]:
            return one
        return Outcome(
            one.variant, one.seed, one.key, "left out", one.directory, why=stopped.sentence
        )

    return replace(
        results,
        outcomes=[with_stop(one) for one in results.outcomes],
        stopped={label: stopped.sentence for label, stopped in found.items()},
    )


def stopped_variants(results: Results) -> dict[str, StoppedVariant]:
    """Label -> StoppedVariant of every stopped variant. Empty without study.stop."""
    node = results.study.get("stop")
    found: dict[str, StoppedVariant] = {}
    if not node:
        return found
    order, margin = results.seeds, _margin(results)
    can_stop = {one["label"] for one in results.variants} - never_stopped(results)
    max_p = node["alpha"] / (len(order) - node["after"])  # Bonferroni
    for count in range(node["after"], len(order)):
        outcomes = [one for one in results.outcomes if one.seed in order[:count]]
        unfinished = {results.label(one) for one in outcomes if one.status not in FINAL_STATUSES}
        tested = can_stop - unfinished - found.keys()
        if _baseline_label(results) in unfinished or not tested:
            continue
        base, *others = variant_results(replace(results, outcomes=outcomes), results.metric)
        for variant in others:
            d = paired_difference(base.runs.values, variant.runs.values)
            # p of the hypothesis that the variant is not worse by more than the margin
            p = one_sided_p(d, -margin, -results.metric.sign)
            if variant.label in tested and p is not None and p <= max_p:
                found[variant.label] = StoppedVariant(
                    count, _stop_sentence(variant.name, base.name, count, d, p, results)
                )
    return found


def _margin(results: Results) -> float:
    """The margin of the rule: its own, that of the study, or 0."""
    margin = results.study["stop"]["margin"]
    return margin if margin is not None else results.study.get("margin") or 0.0


def undecided_run_keys(results: Results) -> set[str]:
    """Keys of runs that may still be left out: a run of an earlier seed, of the same variant or of
    the baseline, is not over.
    """
    node, order = results.study.get("stop"), results.seeds
    if not node:
        return set()
    base, protected = _baseline_label(results), never_stopped(results)
    unfinished = [
        (results.label(one), order.index(one.seed))
        for one in results.outcomes
        if one.status not in FINAL_STATUSES
    ]
    return {
        one.key
        for one in results.outcomes
        for own, index in [(results.label(one), order.index(one.seed))]
        if index >= node["after"]
        and own not in protected
        and any(label in (own, base) and earlier < index for label, earlier in unfinished)
    }


def never_stopped(results: Results) -> set[str]:
    """Labels of variants that are never stopped: the baseline and the variants of the claim."""
    claims = expectations(results.claim.get("expect") or [])
    claimed = {one.get(key) for one in claims for key in ("variant", "than")}
    return {
        _baseline_label(results),
        *(v["label"] for v in results.variants if claimed & {v["label"], v["name"]}),
    }


def notes(results: Results) -> list[str]:
    """Notes for the report of a study with study.stop."""
    node: Any = results.study.get("stop")
    if not node:
        return []
    count = len(results.seeds)
    return [
        f"Early stopping: after {node['after']} to {count - 1} of {count} seeds, a variant was"
        " stopped if the one-sided paired t test showed it to be worse by more than the margin. A"
        f" variant that is not is stopped in at most {100 * node['alpha']:g} % of studies. The"
        " difference of a stopped variant is biased (too large on average), so it is not tested."
        f" Stopped: {', '.join(results.stopped) or 'none'}."
    ]


def _baseline_label(results: Results) -> str:
    return results.variants[0]["label"]


def _stop_sentence(
    name: str, base: str, count: int, d: Difference, p: float, results: Results
) -> str:
    metric, margin, seeds = results.metric, _margin(results), len(results.seeds)
    after = results.study["stop"]["after"]
    exceeds = f", more than the margin of {metric.format_exact(margin)}" if margin else ""
    look = f"look {count - after + 1} of {seeds - after}"
    test = f"one-sided {'t test' if d.sd else 'sign test'}, {format_p(p)}, {look}"
    return (
        f"{name} was stopped after {count} of {seeds} seeds: it is worse than {base} by"
        f" {metric.format(abs(d.mean))}{exceeds} ({d.count} seeds, {test})."
    )
