"""What a study found, as values and sentences. `sections.document` arranges them as a report."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from xformer_kit.registry.printable import printable
from xformer_kit.study import factorial, stop
from xformer_kit.study.answer import answer, effect_sentences, missing
from xformer_kit.study.claim import Claim, held
from xformer_kit.study.factor import BASELINE
from xformer_kit.study.factorial import Cell, Effect
from xformer_kit.study.metric import Metric
from xformer_kit.study.report.curves import VariantCurve, curves, gaps, names
from xformer_kit.study.report.fairness import matched, notes, tuning, unequal_times
from xformer_kit.study.report.laws import Laws, answered, laws, sentences, top
from xformer_kit.study.report.search import SearchSummary, compared, searched
from xformer_kit.study.report.secondary_metrics import SecondaryMetric, secondary_metrics
from xformer_kit.study.report.variants import VariantResult, variants
from xformer_kit.study.results import Results, rung_name, title
from xformer_kit.study.statistics import Band, holm

CROSSED = ("factorial", "fractional", "pairs")  # designs that combine their factors


class Trouble(NamedTuple):
    """A run that did not finish, or not as planned."""

    name: str  # of the variant, with its point of tuning
    seed: int
    status: str
    step: int | None
    why: str


@dataclass(frozen=True)
class Content:
    """Sentences are plain text; numbers are in the metric's own scale."""

    results: Results  # those that are compared
    metric: Metric
    setting: str  # how large the study is
    variants: list[VariantResult]  # the baseline first
    sentence: str  # the answer
    sentences: list[str]  # of each variant
    partial: str  # a sentence on runs that are missing; empty if none are
    matched: str
    tuning: list[str]
    claim: Claim | None
    effects: list[tuple[Effect, float | None, str]]  # p after Holm, sentence
    secondary: list[SecondaryMetric]
    troubles: list[Trouble]
    notes: list[str]  # on fairness
    curves: dict[
        str, list[VariantCurve]
    ]  # metric -> of every variant; first the one that is compared
    gaps: list[Band]  # of every variant but the baseline, in the metric of the first curve
    versions: dict[str, str]
    samples: list[tuple[str, int, str]]  # variant, seed, text
    search: SearchSummary | None = None
    laws: Laws | None = None  # of a ladder

    @property
    def claimed(self) -> str:
        """Whether the claim held, and why its p may be smaller than the same variant's in the
        table.
        """
        if self.claim is None:
            return ""
        own = (
            " It is a question of its own, asked before the runs: its p is not corrected for the"
            " other variants."
        )
        return self.claim.sentence + own * (len(self.variants) > 2)

    @property
    def question(self) -> str:
        return self.results.study["question"] or self.results.study["name"]

    @property
    def paper(self) -> str:
        return str(self.results.claim.get("paper") or "")

    @property
    def margin(self) -> float | None:
        return self.results.study.get("margin")

    @property
    def baseline(self) -> VariantResult:
        return self.variants[0]


def content(whole: Results) -> Content:
    """Raises ConfigError for a metric that no run has or whose better side is unknown, and for a
    claim at fault.
    """
    metric = whole.metric
    results = top(compared(whole))  # of a ladder, variants are compared at the top
    base, *others = variants(results, metric)
    found = answer(
        base.runs, [one.runs for one in others], metric, margin=whole.study.get("margin")
    )
    others = [replace(one, verdict=v) for one, v in zip(others, found.verdicts, strict=True)]
    every = [base, *others]
    drawn = names(results, metric.name)
    search = searched(whole, every)
    content = Content(
        results=results,
        metric=metric,
        setting=_setting(whole, every),
        variants=every,
        sentence=" ".join(filter(None, [found.sentence, unequal_times(results, every)])),
        sentences=[_baseline(base, metric), *(v.sentence for v in found.verdicts)],
        partial=(search.partial if search else "") or _partial(whole),
        matched=matched(results, every),
        tuning=tuning(results, every),
        claim=_claim(results, every),
        effects=_effects(results, every),
        secondary=secondary_metrics(results, every),
        troubles=_troubles(whole),
        notes=[
            *notes(results, every),
            *stop.notes(results),
            *([search.caution] if search and search.caution else []),
        ],
        curves={name: curves(results, every, name) for name in drawn},
        gaps=gaps(results, every, drawn[0]) if drawn else [],
        versions=_versions(whole),
        samples=_samples(results, every),
        search=search,
    )
    ladder = laws(whole)
    return content if ladder is None else _on_ladder(content, ladder)


def _on_ladder(content: Content, found: Laws) -> Content:
    """Adds the laws before the sentences, which are about the top rung."""
    there = f"On the top rung ({found.top}): "
    each = zip(sentences(found), content.sentences, strict=True)
    return replace(
        content,
        laws=found,
        sentence=answered(found) + f" {there}{content.sentence}" * (len(content.variants) > 1),
        sentences=[f"{law} {there}{sentence}" for law, sentence in each],
    )


def _setting(results: Results, found: list[VariantResult]) -> str:
    seeds = results.seeds
    several = f"seed {seeds[0]}" if seeds else "no seed"
    if len(seeds) > 1:
        several = f"{len(seeds)} seeds"
    points = max(len(one.points) for one in found)
    rungs = len({rung_name(variant) for variant in results.variants})
    return (
        f"{len(found)} variant{'s' * (len(found) != 1)} x {several}"
        + f" x {rungs} rungs" * (rungs > 1)
        + f" x {points} points of tuning" * (points > 1)
        + f", design {results.study['design']['name']}, {results.study['metric']}"
    )


def _baseline(base: VariantResult, metric: Metric) -> str:
    levels = [f"{name}={x}" for name, x in base.levels.items()]
    # A level without a name is its overrides.
    of = ", ".join(base.words if BASELINE in base.levels.values() else levels)
    found, name = base.best.interval, f"{base.name} ({of})" if of else base.name
    if found.mean is None:
        return " ".join([f"{name} has no finished run yet.", *missing(base.runs)])
    mean, span = metric.estimate(found, unit=True)
    runs = f"{found.count} seed{'s' * (found.count > 1)}"
    if found.low is not None:
        runs = f"95 % interval {span}, {runs}"
    return " ".join([f"{name} has {metric.name} {mean} ({runs}).", *missing(base.runs)])


UNFINISHED = {
    "running": "running",
    "stopped": "stopped half-way",
    "open": "not started",
    "failed": "failed",
}


def _partial(results: Results) -> str:
    count: Counter[str] = Counter(one.status for one in results.outcomes)
    left = [f"{count[status]} {words}" for status, words in UNFINISHED.items() if count[status]]
    missing = sum(count[status] for status in UNFINISHED)
    partial = (
        f"Partial: {missing} of {len(results.outcomes)} runs have not finished ({', '.join(left)})."
        " What follows holds for the runs that have, and may change."
    )
    return partial * bool(left)


def _claim(results: Results, found: list[VariantResult]) -> Claim | None:
    if (expect := results.claim.get("expect")) is None:
        return None
    known = {one.name: one.runs for one in found} | {one.label: one.runs for one in found}
    return held(expect, known, results.metric, margin=results.study.get("margin"))


def _effects(
    results: Results, found: list[VariantResult]
) -> list[tuple[Effect, float | None, str]]:
    base = found[0].levels
    if results.study["design"]["name"] not in CROSSED or len(base) < 2:
        return []
    cells = [
        Cell(one.levels, seed, value) for one in found for seed, value in one.runs.values.items()
    ]
    if not cells:
        return []
    effects = factorial.effects(cells, base)
    ps = holm([effect.difference.p for effect in effects])
    return list(zip(effects, ps, effect_sentences(effects, results.metric), strict=True))


STATUSES = ("diverged", "failed", "pruned", "ended early", "stopped", "running", "open")


def _troubles(results: Results) -> list[Trouble]:
    found = []
    for one in results.outcomes:
        early = one.facts.get("stopped") if one.status == "finished" else None
        status, why = ("ended early", str(early)) if early else (one.status, one.why)
        if status in STATUSES:
            found.append(
                Trouble(title(results.variants[one.variant]), one.seed, status, one.step, why)
            )
    return sorted(found, key=lambda trouble: STATUSES.index(trouble.status))


def _versions(results: Results) -> dict[str, str]:
    """Package -> version; several versions if runs differ in it."""
    found: dict[str, dict[str, None]] = {}
    for facts in [*(one.facts for one in results.outcomes), results.search or {}]:
        for name, version in facts.get("versions", {}).items():
            found.setdefault(name, {})[str(version)] = None
    return {name: ", ".join(versions) for name, versions in found.items()}


def _samples(results: Results, found: list[VariantResult]) -> list[tuple[str, int, str]]:
    """What each variant generated, at the first seed that all have if there is one."""
    written = {
        variant.name: {
            o.seed: printable(str(o.facts["sample"]))
            for o in results.of(variant.best.index)
            if o.facts.get("sample")
        }
        for variant in found
    }
    written = {name: mine for name, mine in written.items() if mine}
    common = set.intersection(*map(set, written.values())) if written else set()
    return [(name, seed := min(common or mine), mine[seed]) for name, mine in written.items()]
