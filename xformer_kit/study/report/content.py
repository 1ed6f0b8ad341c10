"""The content of a report: values and sentences. `sections.document` arranges them."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from xformer_kit.study import factorial, stop
from xformer_kit.study.answer import effect_sentences, missing_runs
from xformer_kit.study.claim import Claim, evaluate
from xformer_kit.study.factor import BASELINE
from xformer_kit.study.factorial import Cell, Effect
from xformer_kit.study.metric import Metric
from xformer_kit.study.report.curves import VariantCurve, curves, difference_curves, drawn_metrics
from xformer_kit.study.report.fairness import (
    budget_sentence,
    comparability_notes,
    tuning_sentences,
    unequal_times,
)
from xformer_kit.study.report.forecast import Forecast, compared, forecast_sentences
from xformer_kit.study.report.hardly_trained import hardly_trained
from xformer_kit.study.report.laws import (
    Laws,
    fit_laws,
    law_sentence,
    prediction_sentence,
)
from xformer_kit.study.report.noise import Noise, compared_runs, noise_of, noise_sentence
from xformer_kit.study.report.search import (
    SearchSummary,
    confirmation_results,
    search_summary,
)
from xformer_kit.study.report.secondary_metrics import SecondaryMetric, secondary_metrics
from xformer_kit.study.report.sizes import (
    SizeResult,
    Trend,
    by_size,
    headline,
    trend_sentence,
    trends,
)
from xformer_kit.study.results import STATUS_NAMES, Results, rung_name, title
from xformer_kit.study.statistics import Band, holm
from xformer_kit.study.variants import VariantResult
from xformer_kit.text.printable import printable

CROSSED = ("factorial", "fractional", "pairs")  # designs that combine factors


class IrregularRun(NamedTuple):
    """A run that diverged, failed, is unfinished, or ended early."""

    name: str  # of the variant, with rung and tuning
    seed: int
    status: str
    step: int | None
    why: str


@dataclass(frozen=True)
class Content:
    """Sentences are plain text; numbers are not scaled by the metric."""

    results: Results  # the runs that are compared
    metric: Metric
    setting: str  # size, design and metric of the study
    variants: list[VariantResult]  # the baseline first
    sentence: str  # the headline
    sentences: list[str]  # one for each variant
    partial: str  # a sentence on missing runs; empty if there are none
    matched: str  # on the budget
    tuning: list[str]
    claim: Claim | None
    effects: list[tuple[Effect, float | None, str]]  # effect, Holm-corrected p, sentence
    secondary: list[SecondaryMetric]
    irregular_runs: list[IrregularRun]
    notes: list[str]  # on fairness
    # metric -> curves of all variants; the first metric is the one that is compared
    curves: dict[str, list[VariantCurve]]
    # variant - baseline in the first metric of `curves`, for every variant but the baseline
    difference_curves: list[Band]
    versions: dict[str, str]
    samples: list[tuple[str, int, str]]  # variant, seed, text
    search: SearchSummary | None = None
    laws: Laws | None = None  # of a ladder
    forecast: Forecast | None = None  # of the largest size of a ladder
    noise: list[Noise] = field(default_factory=list)  # of one run of the baseline
    sizes: list[SizeResult] = field(default_factory=list)  # of a study at several
    trends: list[Trend] = field(default_factory=list)  # with size, of each variant
    hardly_trained: str = ""  # a sentence if the loss is near that of the frequencies of tokens

    @property
    def claim_sentence(self) -> str:
        """Whether the claim held, and on which runs; empty without a claim."""
        if self.claim is None:
            return ""
        correction = (
            " The claim was stated before the runs, so its p-value is not corrected for the other"
            " variants."
        )
        caveat = " It was tested on runs that are hardly trained."
        return (
            self.claim.sentence
            + correction * (len(self.variants) > 2)
            + caveat * bool(self.hardly_trained)
        )

    @property
    def question(self) -> str:
        return self.results.study["question"] or self.results.study["name"]

    @property
    def margin(self) -> float | None:
        return self.results.study.get("margin")

    @property
    def baseline(self) -> VariantResult:
        return self.variants[0]


def content(all_results: Results) -> Content:
    """The content of the report of all results.

    Raises ConfigError for a metric that no run has or whose direction is unknown, and for a faulty
    claim.
    """
    metric = all_results.metric
    each = by_size(compared_runs(confirmation_results(all_results)), metric, _reference)
    largest = each[-1]
    results, every, base = largest.results, largest.variants, largest.variants[0]
    drawn = drawn_metrics(results, metric.name)
    noise = noise_of(all_results, base.runs.values)
    search = search_summary(all_results, every)
    return _at_all_sizes(
        Content(
            results=results,
            metric=metric,
            setting=_setting(all_results, every),
            variants=every,
            sentence=" ".join(filter(None, [largest.sentence, unequal_times(results, every)])),
            sentences=[_baseline_sentence(base, metric, noise), *largest.sentences],
            partial=(search.partial if search else "") or _partial_sentence(all_results),
            matched=budget_sentence(results, [one for size in each for one in size.variants]),
            tuning=tuning_sentences(results, every),
            claim=_evaluate_claim(results, every),
            effects=_effect_results(results, every),
            secondary=secondary_metrics(results, every),
            irregular_runs=_irregular_runs(all_results),
            notes=[
                *comparability_notes(results, every),
                *stop.notes(results),
                *([search.caution] if search and search.caution else []),
            ],
            curves={name: curves(results, every, name) for name in drawn},
            difference_curves=difference_curves(results, every, drawn[0]) if drawn else [],
            versions=_versions(all_results),
            samples=_common_samples(results, every),
            search=search,
            noise=noise,
            hardly_trained=hardly_trained(results, every),
        ),
        each,
        all_results,
    )


def _at_all_sizes(content: Content, each: list[SizeResult], all_results: Results) -> Content:
    """Adds the results at several sizes, or the laws and the forecast of a ladder."""
    metric, base = content.metric, content.baseline
    if len(each) > 1:
        return _at_sizes(content, each)
    ladder = fit_laws(compared_runs(all_results))
    if ladder is None:
        return content
    content = _on_ladder(content, ladder)
    if (written := compared(all_results, metric)) is None:
        return content
    of_base = [row for row in written.rows if row.label == base.label]
    own = forecast_sentences(replace(written, rows=of_base[-1:]), metric)
    return replace(content, forecast=written, sentence=" ".join([*own, content.sentence]))


def _at_sizes(content: Content, sizes: list[SizeResult]) -> Content:
    """Adds the results at all sizes; the other sections are about the largest."""
    found, metric = trends(sizes), content.metric
    base, *others = content.sentences
    at = f"At {sizes[-1].name}: "
    after = [f" {trend_sentence(one, metric)}" for one in found] or [""] * len(others)
    return replace(
        content,
        sizes=sizes,
        trends=found,
        sentence=headline(sizes, _reference(content.baseline), metric),
        sentences=[
            at + base,
            *(f"{at}{own}{trend}" for own, trend in zip(others, after, strict=True)),
        ],
    )


def _on_ladder(content: Content, found: Laws) -> Content:
    """Adds the scaling laws; the other sentences are about the top rung."""
    top = f"At the top rung ({found.top}): "
    return replace(
        content,
        laws=found,
        sentence=prediction_sentence(found, _reference(content.baseline))
        + f" {top}{content.sentence}" * (len(content.variants) > 1),
        sentences=[
            f"{law_sentence(one, found)} {top}{sentence}"
            for one, sentence in zip(found.variants, content.sentences, strict=True)
        ],
    )


def _reference(base: VariantResult) -> str:
    """The baseline's name in the headline: its level, if there is one factor and no other name."""
    levels = list(base.levels.items())
    named = base.name != BASELINE or len(levels) != 1 or levels[0][1] == BASELINE
    return base.name if named else "=".join(levels[0])


def _setting(results: Results, found: list[VariantResult]) -> str:
    """The size, design and metric of the study, for the report's subtitle."""
    seeds = results.seeds
    seeds_text = f"seed {seeds[0]}" if seeds else "no seed"
    if len(seeds) > 1:
        seeds_text = f"{len(seeds)} seeds"
    points = max(len(one.points) for one in found)
    rungs = len({rung_name(variant) for variant in results.variants})
    return (
        f"{len(found)} variant{'s' * (len(found) != 1)} x {seeds_text}"
        + f" x {rungs} {'sizes' if results.study.get('sizes') else 'rungs'}" * (rungs > 1)
        + f" x {points} tuning points" * (points > 1)
        + f", design {results.study['design']['name']}, {results.study['metric']}"
    )


def _baseline_sentence(base: VariantResult, metric: Metric, noise: list[Noise]) -> str:
    """The sentences on the baseline's mean, its noise, and its runs without a value."""
    levels = [f"{name}={x}" for name, x in base.levels.items()]
    # A level without a label is described by its overrides.
    description = ", ".join(base.words if BASELINE in base.levels.values() else levels)
    name = f"{base.name} ({description})" if description else base.name
    found = base.best.interval
    if found.mean is None:
        return " ".join([f"{name} has no finished run yet.", *missing_runs(base.runs)])
    mean, span = metric.estimate(found, unit=True)
    runs = f"{found.count} seed{'s' * (found.count > 1)}"
    if found.low is not None:
        runs = f"95 % CI {span}, {runs}"
    texts = [f"{name} has {metric.name} {mean} ({runs}).", noise_sentence(noise, metric)]
    return " ".join(filter(None, [*texts, *missing_runs(base.runs)]))


UNFINISHED = ("running", "stopped", "open", "failed")


def _partial_sentence(results: Results) -> str:
    """The sentence on missing runs; empty if there are none."""
    count: Counter[str] = Counter(one.status for one in results.outcomes)
    each = [
        f"{count[status]} {STATUS_NAMES.get(status, status)}"
        for status in UNFINISHED
        if count[status]
    ]
    missing = sum(count[status] for status in UNFINISHED)
    partial = (
        f"Partial: {missing} of {len(results.outcomes)} runs have not finished ({', '.join(each)})."
        " Results are those of finished runs, and may change."
    )
    return partial * bool(each)


def _evaluate_claim(results: Results, found: list[VariantResult]) -> Claim | None:
    if not (expect := results.claim.get("expect")):
        return None
    known = {one.name: one.runs for one in found} | {one.label: one.runs for one in found}
    return evaluate(expect, known, results.metric, margin=results.study.get("margin"))


def _effect_results(
    results: Results, found: list[VariantResult]
) -> list[tuple[Effect, float | None, str]]:
    """Effects with their corrected p and sentence; empty if the design does not cross factors."""
    base = found[0].levels
    if results.study["design"]["name"] not in CROSSED or len(base) < 2:
        return []
    cells = (
        Cell(one.levels, seed, value) for one in found for seed, value in one.runs.values.items()
    )
    effects = factorial.factorial_effects(cells, base)
    ps = holm([effect.difference.p for effect in effects])
    return list(zip(effects, ps, effect_sentences(effects, results.metric), strict=True))


STATUSES = ("diverged", "failed", "pruned", "ended early", "stopped", "running", "open")


def _irregular_runs(results: Results) -> list[IrregularRun]:
    """The runs that did not end as planned, sorted by status."""
    found = []
    for one in results.outcomes:
        early = one.facts.get("stopped") if one.status == "finished" else None
        status, why = ("ended early", str(early)) if early else (one.status, one.why)
        if status in STATUSES:
            found.append(
                IrregularRun(title(results.variants[one.variant]), one.seed, status, one.step, why)
            )
    return sorted(found, key=lambda run: STATUSES.index(run.status))


def _versions(results: Results) -> dict[str, str]:
    """Package -> its version, or all versions if runs differ."""
    found: dict[str, dict[str, None]] = {}
    for facts in [*(one.facts for one in results.outcomes), results.search or {}]:
        for name, version in facts.get("versions", {}).items():
            found.setdefault(name, {})[str(version)] = None
    return {name: ", ".join(versions) for name, versions in found.items()}


def _common_samples(results: Results, found: list[VariantResult]) -> list[tuple[str, int, str]]:
    """The sample of each variant, at the first common seed if there is one."""
    samples = {
        variant.name: {
            o.seed: printable(str(o.facts["sample"]))
            for o in results.outcomes_of(variant.best.index)
            if o.facts.get("sample")
        }
        for variant in found
    }
    samples = {name: by_seed for name, by_seed in samples.items() if by_seed}
    common = set.intersection(*map(set, samples.values())) if samples else set()
    return [
        (name, seed := min(common or by_seed), by_seed[seed]) for name, by_seed in samples.items()
    ]
