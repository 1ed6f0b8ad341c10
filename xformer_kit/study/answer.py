"""The answer of a study: a headline, and one sentence for each variant.

A variant is better or worse only if its Holm-corrected p-value is at most alpha = 1 - level.
Otherwise the difference is not significant, and the sentence gives the minimum detectable effect.
Runs that diverged, failed or have not finished are listed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from xformer_kit.study.factorial import Effect
from xformer_kit.study.metric import Metric, format_p
from xformer_kit.study.statistics import (
    Difference,
    difference,
    divergence_p,
    equivalence_p,
    holm,
    standard_deviation,
)
from xformer_kit.study.wording import Wording

MAX_NAMES = 10  # of variants with one outcome in a headline
OUTCOME_TEXTS = {
    "equivalent": "equivalent",
    "not significant": "no significant difference",
    "stopped": "worse, stopped before the last seed",
    "unknown": "not tested",
}
UNCLEAR = {"none", "null", "true", "false"}  # levels that need the name of their factor


@dataclass(frozen=True)
class Runs:
    """How the runs of one variant ended, by seed, with the metric of finished runs."""

    name: str  # placement=post
    values: Mapping[int, float]  # seed -> metric of a finished run
    diverged: Mapping[int, int] = field(default_factory=dict)  # seed -> step
    unfinished: Sequence[int] = ()  # seeds
    failed: Sequence[int] = ()  # seeds
    left_out: Sequence[int] = ()  # seeds that are not run because the variant was stopped
    stopped: str = ""  # the sentence on the stop; empty if the variant was not stopped

    @property
    def ended(self) -> int:
        """Number of runs that finished or diverged."""
        return len(self.values) + len(self.diverged)

    @property
    def diverged_of(self) -> tuple[int, int]:
        """(number of runs that diverged, number of runs that finished or diverged)."""
        return len(self.diverged), self.ended

    @property
    def total(self) -> int:
        """Number of all planned runs."""
        return self.ended + len(self.unfinished) + len(self.failed) + len(self.left_out)


@dataclass(frozen=True)
class Verdict:
    """One variant against the baseline.

    outcome: better, worse, equivalent (within the margin), not significant, diverged (no run has a
    value because all diverged), stopped (before its last seed, so it is not tested) or unknown
    (at most one common seed).
    """

    name: str
    outcome: str
    difference: Difference
    p: float | None  # of no difference, Holm-corrected
    p_margin: float | None  # of a difference as large as the margin, Holm-corrected
    sentence: str


@dataclass(frozen=True)
class StudyAnswer:
    """The headline, and the verdict on each variant."""

    sentence: str
    verdicts: list[Verdict]


def answer(
    baseline: Runs,
    variants: Sequence[Runs],
    measured: Metric,
    *,
    margin: float | None = None,
    reference: str = "",
) -> StudyAnswer:
    """Compares every variant with the baseline over common seeds.

    margin: a difference in the metric below which variants count as equivalent; without one,
    equivalence is not tested. reference: name of the baseline in the headline, by default its own.
    The p-values of all variants are one family, those of equivalence another.
    """
    return answers([(baseline, variants)], measured, margin=margin, reference=reference)[0]


def answers(
    groups: Sequence[tuple[Runs, Sequence[Runs]]],
    measured: Metric,
    *,
    margin: float | None = None,
    reference: str = "",
) -> list[StudyAnswer]:
    """The answer of each group, a baseline and its variants; p-values of all groups are one family,
    those of equivalence another. The arguments are those of `answer`.
    """
    tests = [
        (runs, difference(baseline.values, runs.values))
        for baseline, variants in groups
        for runs in variants
    ]
    # A variant that was stopped counts as a test that was not significant.
    ps = holm([1.0 if runs.stopped else d.p for runs, d in tests])
    ps_margin = holm([_equivalence_p(runs, d, margin) for runs, d in tests])
    wording = Wording(measured, margin, family=sum(p is not None for p in ps))
    results, found = zip(tests, ps, ps_margin, strict=True), []
    for baseline, variants in groups:
        verdicts = _verdicts(baseline, islice(results, len(variants)), wording)
        name = reference or baseline.name
        headline = _headline(baseline, variants, verdicts, wording, name)
        found.append(StudyAnswer(headline, verdicts))
    return found


def _verdicts(baseline: Runs, results: Iterable[Any], wording: Wording) -> list[Verdict]:
    """The verdict on each variant. results: ((runs, difference), p, p of the margin)."""
    verdicts, noise = [], standard_deviation([*baseline.values.values()]).mean
    for (runs, d), p, p_margin in results:
        if runs.stopped:
            outcome, p, p_margin, first = "stopped", None, None, [runs.stopped]
        elif runs.diverged and not runs.values:
            outcome, first = "diverged", []
        else:
            outcome = wording.outcome(d, p, p_margin)
            first = [wording.compared(runs.name, baseline.name, outcome, d, p, p_margin)]
            first += wording.below_noise(outcome, d, noise)
        sentence = " ".join([*first, *missing_runs(runs, baseline)])
        verdicts.append(Verdict(runs.name, outcome, d, p, p_margin, sentence))
    return verdicts


def _equivalence_p(runs: Runs, difference: Difference, margin: float | None) -> float | None:
    """p of equivalence within the margin; None if it is not tested."""
    if not margin or difference.count < 2:
        return None
    return 1.0 if runs.stopped else equivalence_p(difference, margin)


def effect_sentences(effects: Sequence[Effect], measured: Metric) -> list[str]:
    """A sentence for each main effect and interaction; their p-values are one family."""
    ps = holm([effect.difference.p for effect in effects])
    wording = Wording(measured, None, family=sum(p is not None for p in ps))
    return [_effect_sentence(effect, p, wording) for effect, p in zip(effects, ps, strict=True)]


def _effect_sentence(effect: Effect, p: float | None, wording: Wording) -> str:
    """The sentence on one main effect or interaction."""
    d, names = effect.difference, effect.names
    outcome = wording.outcome(d, p)
    if effect.method == "not crossed":
        return (
            f"{effect.name} cannot be estimated: no combination of the other factors was run at all"
            " of its levels."
        )
    if len(names) == 1:
        reference = f"{effect.factors[0]}={effect.baseline[0]}"
        text = wording.compared(names[0], reference, outcome, d, p)
    elif outcome == "not significant" and d.sd:
        text = wording.not_significant(f"The interaction of {effect.name}", d, p)
    else:
        both = f"{names[0]} and {names[1]} together"
        text = wording.compared(both, "the sum of their separate effects", outcome, d, p, be="are")
    return text + _combinations_used(effect)


def _combinations_used(effect: Effect) -> str:
    """The sentence on the combinations and seeds that an effect is estimated from."""
    share = f"{effect.used} of {effect.combinations} combinations"
    text = f" Averaged over {share} of the other factors"
    if effect.method == "additive":
        text = f" Fitted to {share}, assuming no interactions"
    if missing := effect.seeds - effect.difference.count:
        text += f"; {missing} of {effect.seeds} seeds excluded because runs are missing"
    return f"{text}."


def missing_runs(runs: Runs, baseline: Runs | None = None) -> list[str]:
    """Sentences on runs of a variant that have no value; with the baseline, also the test of
    whether both diverge equally often.
    """
    sentences = []
    if runs.diverged:
        steps = ", ".join(
            f"seed {seed} at step {step:,}" for seed, step in sorted(runs.diverged.items())
        )
        test = ""
        if baseline is not None and baseline.ended:
            p = format_p(divergence_p(baseline.diverged_of, runs.diverged_of))
            share = "{} of {} runs".format(*baseline.diverged_of)
            test = f"; {share} of {baseline.name} diverged (Fisher's exact test, {p})"
        count = len(runs.diverged)
        sentences.append(f"{count} of {runs.ended} runs of {runs.name} diverged ({steps}){test}.")
    for seeds, status in ((runs.failed, "failed"), (runs.unfinished, "not finished")):
        if seeds:
            noun = "seed" if len(seeds) == 1 else "seeds"
            which = f"{noun} {', '.join(map(str, sorted(seeds)))}"
            sentences.append(
                f"{len(seeds)} of {runs.total} runs {status} ({which}): this result is partial."
            )
    return sentences


def _headline(
    baseline: Runs,
    variants: Sequence[Runs],
    verdicts: list[Verdict],
    wording: Wording,
    reference: str,
) -> str:
    """Compared with placement=pre, worse are post (by 0.56 nats) and output (by 0.31 nats);
    sandwich: no significant difference.

    Every variant occurs once. Intervals and p-values are in its own sentence.
    """
    if not verdicts:
        return f"There is no variant to compare with {reference}."
    factor = common_factor([reference, *(verdict.name for verdict in verdicts)])
    names = {runs.name: _headline_name(runs, factor) for runs in variants}
    clauses = list(_clauses(verdicts, names, wording))
    clauses += [
        f"{names[runs.name]}: {_diverged_text(runs)}"
        for runs, verdict in zip(variants, verdicts, strict=True)
        if verdict.outcome == "diverged"
    ]
    if baseline.diverged:
        clauses.append(f"{reference.removeprefix(factor)}: {_diverged_text(baseline)}")
    every = (baseline, *variants)
    if unfinished := sum(len(runs.unfinished) + len(runs.failed) for runs in every):
        clauses.append(
            f"partial: {unfinished} of {sum(runs.total for runs in every)} runs have not finished"
        )
    return f"Compared with {reference}, {'; '.join(clauses)}."


def _headline_name(runs: Runs, factor: str) -> str:
    """The name without its factor, in quotes if it contains a comma; with the number of diverged
    runs if others have a value.
    """
    name = runs.name.removeprefix(factor)
    name = f"'{name}'" if "," in name else name
    return f"{name} ({_diverged_text(runs)})" if runs.diverged and runs.values else name


def _diverged_text(runs: Runs) -> str:
    return "{} of {} runs diverged".format(*runs.diverged_of)


def _clauses(verdicts: list[Verdict], names: Mapping[str, str], wording: Wording) -> Iterator[str]:
    """A clause for each outcome but "diverged"."""
    tested = [verdict for verdict in verdicts if not _one_seed(verdict)]
    for outcome in ("better", "worse"):
        if chosen := [verdict for verdict in tested if verdict.outcome == outcome]:
            yield _with_sizes(chosen, names, wording, outcome)
    margin = wording.metric.format_exact(wording.margin) if wording.margin else ""
    clauses: dict[str, list[str]] = {}
    for outcome, text in OUTCOME_TEXTS.items():
        for verdict in (verdict for verdict in tested if verdict.outcome == outcome):
            if outcome == "not significant":
                text = OUTCOME_TEXTS[outcome] + wording.after_correction(verdict.difference)
            elif outcome == "equivalent":
                text = f"{OUTCOME_TEXTS[outcome]} within the margin of {margin}"
            clauses.setdefault(text, []).append(names[verdict.name])
    for text, chosen_names in clauses.items():
        if len(chosen_names) > MAX_NAMES:
            chosen_names[MAX_NAMES:] = [f"{len(chosen_names) - MAX_NAMES} others"]
        yield f"{join(chosen_names)}: {text}"
    if one_seed := [verdict for verdict in verdicts if _one_seed(verdict)]:
        largest_first = sorted(one_seed, key=lambda verdict: -abs(verdict.difference.mean))
        sizes = [f"{names[v.name]} {wording.signed(v.difference.mean)}" for v in largest_first]
        where = "at one seed, " * all(v.difference.method == "one seed" for v in one_seed)
        yield f"{where}not tested: {', '.join(sizes)}"


def _one_seed(verdict: Verdict) -> bool:
    """Whether there is a difference, but only one seed to measure it."""
    return verdict.outcome == "unknown" and bool(verdict.difference.mean)


def _with_sizes(
    verdicts: list[Verdict], names: Mapping[str, str], wording: Wording, side: str
) -> str:
    """post is worse by 0.56 nats. Of several, the largest difference first: worse are post (by 0.56
    nats) and output (by 0.31 nats).
    """
    largest_first = sorted(verdicts, key=lambda verdict: -abs(verdict.difference.mean))
    sizes = [(names[v.name], wording.size(v.difference)) for v in largest_first]
    if len(sizes) == 1:
        return f"{sizes[0][0]} is {side} by {sizes[0][1]}"
    return f"{side} are {join([f'{name} (by {size})' for name, size in sizes])}"


def common_factor(names: Sequence[str]) -> str:
    """`placement=` if every name is a level of this factor that can be read without it."""
    pairs = [name.partition("=") for name in names]
    readable = all(
        level[:1].isalpha() and level.lower() not in UNCLEAR and not {",", "="} & {*level}
        for *_, level in pairs
    )
    return f"{pairs[0][0]}=" if readable and len({pair[0] for pair in pairs}) == 1 else ""


def join(texts: Sequence[str]) -> str:
    """a, b and c"""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
