"""A study at several sizes: at which of them each difference holds, and how it changes with size.

The p-values of all variants at all sizes are one family. The trend is the slope of the difference
against log2 of the baseline's parameters, fitted within each seed, with the t interval over seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from xformer_kit.study.answer import (
    MAX_NAMES,
    OUTCOME_TEXTS,
    StudyAnswer,
    answers,
    common_factor,
    join,
)
from xformer_kit.study.metric import Metric
from xformer_kit.study.report.laws import split_by_rung, top_rung
from xformer_kit.study.results import Results, rung_name
from xformer_kit.study.statistics import Difference, holm, paired_difference
from xformer_kit.study.variants import VariantResult, variant_results
from xformer_kit.study.wording import Wording


@dataclass(frozen=True)
class SizeResult:
    """The variants at one size, the baseline first."""

    name: str  # model.dim=64
    parameters: float  # of the baseline
    results: Results
    variants: list[VariantResult]
    sentence: str  # the headline
    sentences: list[str]  # one for each variant other than the baseline


@dataclass(frozen=True)
class Trend:
    """The change of a variant's difference for each doubling of the parameters, with the p-value
    corrected for all variants.
    """

    variant: str
    slope: Difference
    p: float | None


def by_size(results: Results, metric: Metric, reference: Any) -> list[SizeResult]:
    """The tested variants at each size, the smallest first; of a ladder, at the top rung. Without
    sizes there is one. reference(baseline) is the baseline's name in the headline.
    """
    is_ladder = results.study["design"]["name"] == "ladder"
    each = [top_rung(results)] if is_ladder else split_by_rung(results)
    each.sort(key=lambda one: one.variants[0]["cost"].get("flops") or 0.0)
    variants = [variant_results(one, metric) for one in each]
    found = answers(
        [(own[0].runs, [one.runs for one in own[1:]]) for own in variants],
        metric,
        margin=results.study.get("margin"),
        reference=reference(variants[0][0]),
    )
    return [_size_result(*one) for one in zip(each, variants, found, strict=True)]


def _size_result(results: Results, found: list[VariantResult], answer: StudyAnswer) -> SizeResult:
    base, *others = found
    return SizeResult(
        rung_name(results.variants[0]) or "",
        float(base.cost["params"] or 0),
        results,
        [base, *(replace(one, verdict=v) for one, v in zip(others, answer.verdicts, strict=True))],
        answer.sentence,
        [verdict.sentence for verdict in answer.verdicts],
    )


def trends(sizes: Sequence[SizeResult]) -> list[Trend]:
    """The trend of each variant; empty if the sizes do not differ in parameters."""
    if len({size.parameters for size in sizes}) < 2:
        return []
    slopes = [
        (variants[0].name, _slope(sizes, variants))
        for variants in zip(*(size.variants[1:] for size in sizes), strict=True)
    ]
    ps = holm([slope.p for _, slope in slopes])
    return [Trend(name, slope, p) for (name, slope), p in zip(slopes, ps, strict=True)]


def _slope(sizes: Sequence[SizeResult], variants: Sequence[VariantResult]) -> Difference:
    """The mean over seeds of the least-squares slope of the difference, of seeds with runs at all
    sizes.
    """
    pairs = [
        (one.runs.values, size.variants[0].runs.values)
        for size, one in zip(sizes, variants, strict=True)
    ]
    seeds = set.intersection(*(own.keys() & base.keys() for own, base in pairs))
    x = [log2(size.parameters) for size in sizes]
    slopes = {
        seed: float(np.polyfit(x, [own[seed] - base[seed] for own, base in pairs], 1)[0])
        for seed in seeds
    }
    return paired_difference(dict.fromkeys(slopes, 0.0), slopes)


def headline(sizes: Sequence[SizeResult], reference: str, metric: Metric) -> str:
    """Compared with placement=pre, post: worse at all 3 sizes (by 0.60, 0.52 and 0.4 nats);
    sandwich: worse at model.dim=64 (by 0.21 nats), no significant difference at model.dim=128 and
    model.dim=256. Variants with one text are named together; of more than
    MAX_NAMES variants the sizes of differences are left out.
    """
    variants = list(zip(*(size.variants[1:] for size in sizes), strict=True))
    factor = common_factor([reference, *(own[0].name for own in variants)])
    names = [own[0].name.removeprefix(factor) for own in variants]
    with_sizes, groups = metric if len(variants) <= MAX_NAMES else None, dict[str, list[str]]()
    for name, own in zip(names, variants, strict=True):
        groups.setdefault(_text(sizes, own, with_sizes), []).append(name)
    clauses = [
        f"{join(each)}{f' ({len(each)})' * (len(each) > MAX_NAMES // 2)}: {text}"
        for text, each in groups.items()
    ]
    without = [size.name for size in sizes if not size.variants[0].runs.values]
    missing = (
        f" There is no run of {reference} to compare with at {join(without)}." if without else ""
    )
    return f"Compared with {reference}, {'; '.join(sorted(clauses, key=_order))}.{missing}"


def _order(clause: str) -> bool:
    """Clauses without a significant difference are last."""
    return not {"better", "worse"} & {*clause.split()}


def _text(
    sizes: Sequence[SizeResult], variants: Sequence[VariantResult], metric: Metric | None = None
) -> str:
    """At which sizes a variant has which outcome; with a metric, also by how much."""
    found: dict[str, list[int]] = {}
    for i, one in enumerate(variants):
        found.setdefault(one.verdict.outcome, []).append(i)
    texts = []
    for outcome, at in sorted(found.items(), key=lambda pair: pair[0] not in ("better", "worse")):
        where = join([sizes[i].name for i in at])
        if len(at) == len(sizes):
            where = "both sizes" if len(at) == 2 else f"all {len(at)} sizes"
        text = f"{OUTCOME_TEXTS.get(outcome, outcome)} at {where}"
        if metric and outcome in ("better", "worse"):
            wording = Wording(metric, None, 1)
            differences = [variants[i].verdict.difference for i in at]
            text += f" (by {join([wording.size(d) for d in differences])})"
        texts.append(text)
    return ", ".join(texts)


def trend_sentence(one: Trend, metric: Metric) -> str:
    """How the difference of a variant changes with size."""
    d = one.slope
    if d.low is None:
        return (
            f"The trend of {one.variant} with size is not tested: it needs two seeds that finished"
            " at every size."
        )
    mean, span = metric.estimate(d, signed=True)
    mean = f"{mean} {metric.unit}".rstrip()
    outcome = Wording(metric, None, 1).outcome(d, one.p)
    clear = "" if outcome in ("better", "worse") else ", not significant"
    return (
        f"For each doubling of the parameters the difference of {one.variant} changes by {mean}"
        f" (95 % CI {span}{clear})."
    )


def size_rows(sizes: Sequence[SizeResult]) -> Iterator[tuple[VariantResult, SizeResult]]:
    """The variants other than the baseline, each at all sizes."""
    for i in range(1, len(sizes[0].variants) if sizes else 0):
        yield from ((size.variants[i], size) for size in sizes)
