"""The answer of a study: a sentence for each variant and one for all.

A variant is better or worse only where its p after Holm's correction is at most alpha = 1 - level.
Where it is not, nothing is claimed but what so many seeds could have seen. Runs that diverged,
failed or have not finished are named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xformer_kit.study.factorial import Effect
from xformer_kit.study.metric import Metric, format_p, metric
from xformer_kit.study.power import detectable, seeds_needed
from xformer_kit.study.statistics import (
    ALPHA,
    SMALL,
    Estimate,
    PairedDifference,
    divergence,
    equivalence,
    holm,
    magnitude,
    paired,
    significant,
)

MANY = 1000  # seeds: nobody runs more


@dataclass(frozen=True)
class Runs:
    """The runs of one variant, seed by seed."""

    name: str  # placement=post
    values: Mapping[int, float]  # seed -> figure of a run that finished
    diverged: Mapping[int, int] = field(default_factory=dict)  # seed -> step
    unfinished: Sequence[int] = ()  # seeds
    failed: Sequence[int] = ()  # seeds
    left_out: Sequence[int] = ()  # seeds at which it was not run, for it was stopped
    stopped: str = ""  # the sentence on that

    @property
    def ended(self) -> int:
        """Runs of which it is known whether they diverge."""
        return len(self.values) + len(self.diverged)

    @property
    def lost(self) -> tuple[int, int]:
        """How many of how many runs diverged."""
        return len(self.diverged), self.ended

    @property
    def total(self) -> int:
        return self.ended + len(self.unfinished) + len(self.failed) + len(self.left_out)


@dataclass(frozen=True)
class Verdict:
    """One variant against the baseline. outcome: better, worse, equivalent (within the margin),
    unseen (no difference was seen), diverged (none of its runs has a figure, for they diverged),
    stopped (before its last seed, so that it is not tested) or unknown (no seed, or one, in
    common).
    """

    name: str
    outcome: str
    difference: PairedDifference
    p: float | None  # of no difference, after Holm
    p_margin: float | None  # of a difference as large as the margin, after Holm
    sentence: str


@dataclass(frozen=True)
class StudyAnswer:
    """The study in a sentence, and each variant in one."""

    sentence: str
    verdicts: list[Verdict]


def answer(
    baseline: Runs,
    variants: Sequence[Runs],
    measured: Metric | str,
    *,
    margin: float | None = None,
) -> StudyAnswer:
    """Every variant against the baseline over common seeds. margin: a difference in the metric
    below which variants count as equal; without one, equality is never claimed. The p-values of all
    variants are one family, those of equality another.
    """
    measured = metric(measured)
    tests = [(runs, paired(baseline.values, runs.values)) for runs in variants]
    # A variant that was stopped stands as a test that was not passed.
    ps = holm([1.0 if runs.stopped else d.p for runs, d in tests])
    ps_margin = holm([_equal(runs, d, margin) for runs, d in tests])
    words = Words(measured, margin, family=sum(p is not None for p in ps))
    verdicts = []
    for (runs, d), p, p_margin in zip(tests, ps, ps_margin, strict=True):
        if runs.stopped:
            outcome, p, p_margin, first = "stopped", None, None, [runs.stopped]
        elif runs.diverged and not runs.values:
            outcome, first = "diverged", []
        else:
            outcome = words.outcome(d, p, p_margin)
            first = [words.compared(runs.name, baseline.name, outcome, d, p, p_margin)]
        verdicts.append(
            Verdict(
                runs.name, outcome, d, p, p_margin, " ".join([*first, *missing(runs, baseline)])
            )
        )
    return StudyAnswer(_summary([baseline, *variants], verdicts, measured, margin), verdicts)


def _equal(runs: Runs, difference: PairedDifference, margin: float | None) -> float | None:
    if not margin or difference.count < 2:
        return None
    return 1.0 if runs.stopped else equivalence(difference, margin)


def effect_sentences(effects: Sequence[Effect], measured: Metric | str) -> list[str]:
    """Main effects and interactions of a factorial design, each in a sentence; their p-values are
    one family.
    """
    ps = holm([effect.difference.p for effect in effects])
    words = Words(metric(measured), None, family=sum(p is not None for p in ps))
    return [_effect_sentence(effect, p, words) for effect, p in zip(effects, ps, strict=True)]


def _effect_sentence(effect: Effect, p: float | None, words: "Words") -> str:
    d, names = effect.difference, effect.names
    outcome = words.outcome(d, p)
    if effect.method == "not crossed":
        return f"Of {effect.name} these runs show nothing: no combination has all of its levels."
    if len(names) == 1:
        text = words.compared(names[0], f"{effect.factors[0]}={effect.baseline[0]}", outcome, d, p)
    elif outcome == "unseen" and d.sd:
        text = words.unseen(f"No interaction of {effect.name}", d, p)
    else:
        text = words.compared(
            f"{names[0]} and {names[1]} together", "their effects apart", outcome, d, p, be="are"
        )
    return text + _basis(effect)


def missing(runs: Runs, baseline: Runs | None = None) -> list[str]:
    """Sentences on runs of a variant that have no figure; with the baseline, whether it diverges as
    often.
    """
    found = []
    if runs.diverged:
        lost = sorted(runs.diverged.items())
        where = ", ".join(f"seed {seed} at step {step:,}" for seed, step in lost)
        beside = ""
        if baseline is not None and baseline.ended:
            p = format_p(divergence(baseline.lost, runs.lost))
            share = "{} of {}".format(*baseline.lost)
            beside = f"; of {baseline.name} {share} (Fisher's exact test, {p})"
        found.append(
            f"{len(lost)} of the {runs.ended} runs of {runs.name} diverged, {where}{beside}."
        )
    for seeds, one, several in (
        (runs.failed, "has failed", "have failed"),
        (runs.unfinished, "is not finished", "are not finished"),
    ):
        if seeds:
            verb, noun = (several, "seeds") if len(seeds) > 1 else (one, "seed")
            which = f"{noun} {', '.join(map(str, sorted(seeds)))}"
            found.append(f"{len(seeds)} of {runs.total} runs {verb} ({which}): this is partial.")
    return found


@dataclass(frozen=True)
class Words:
    """A difference in words, for one metric and one family of comparisons."""

    measured: Metric
    margin: float | None
    family: int  # comparisons whose p-values are corrected together

    def outcome(
        self, difference: PairedDifference, p: float | None, p_margin: float | None = None
    ) -> str:
        if p is None:
            return "unknown"
        if significant(p):
            return self.measured.side(difference.mean)
        return "equivalent" if significant(p_margin) else "unseen"

    def compared(
        self,
        name: str,
        other: str,
        outcome: str,
        d: PairedDifference,
        p: float | None,
        p_margin: float | None = None,
        be: str = "is",
    ) -> str:
        margin = self.measured.as_given(self.margin) if self.margin else ""
        within = f", within the margin of {margin}" if significant(p_margin) else ""
        if d.method not in ("t", "bootstrap"):
            return self._without_t(name, other, d, p, within, be)
        if outcome in ("better", "worse"):
            size, interval = self._estimate(magnitude(d))
            return (
                f"{name} {be} {outcome} than {other} by {size} ({interval}, {d.count} seeds,"
                f" {self._p(p)}){within and ', yet' + within[1:]}."
            )
        if outcome == "no worse":
            of = f"that it is worse by as much, {self._p(p_margin)}"
            return (
                f"{name} {be} no worse than {other} by the margin of {margin}"
                f" ({self._measured(d)}; {of})."
            )
        if outcome == "equivalent":
            of = f"of a difference that large, {self._p(p_margin)}"
            return f"{name} and {other} are equivalent{within[1:]} ({self._measured(d)}; {of})."
        return self.unseen(f"No difference between {name} and {other}", d, p)

    def _without_t(
        self, name: str, other: str, d: PairedDifference, p: float | None, within: str, be: str
    ) -> str:
        if d.method == "no seed":
            return f"{name} and {other} have no finished seed in common: they are not compared."
        if d.method == "equal":
            return (
                f"{name} and {other} have the very same figures at all {d.count} seeds: no"
                f" difference shows{within}."
            )
        way = f"{name} equals {other}"
        if d.mean:
            size = self.measured.format(abs(d.mean))
            way = f"{name} {be} {self.measured.side(d.mean)} than {other} by {size}"
        if d.method == "one seed":
            return (
                f"{way} at the one seed in common, which shows nothing about others: run at least"
                " 5."
            )
        few = "" if significant(p) else ": too few seeds to decide"
        return f"{way} at each of {d.count} seeds alike (sign test, {self._p(p)}{few}){within}."

    def unseen(self, what: str, d: PairedDifference, p: float | None) -> str:
        """With what was measured, and what could have been seen."""
        return f"{what} was seen ({self._measured(d)}, {self._p(p)}): {self._power(d)}."

    def _measured(self, d: PairedDifference) -> str:
        mean, interval = self._estimate(d)
        return f"difference {mean}, {interval}, {d.count} seeds"

    def _p(self, p: float) -> str:
        return format_p(p, SMALL) + " after Holm" * (self.family > 1)

    def _estimate(self, found: PairedDifference | Estimate) -> tuple[str, str]:
        text, span = self.measured.estimate(found, unit=True)
        return text, f"95 % interval {span}"

    def _power(self, d: PairedDifference) -> str:
        """With 5 seeds a difference of 0.012 could have been seen; for 0.006 run 15.

        The second figure is the margin, or half of the first: never the difference that was
        measured, whose power adds nothing to its p (Hoenig and Heisey, 2001).
        """
        alpha = ALPHA / max(1, self.family)  # what the first of a family has to pass
        seen = detectable(d.sd, d.count, alpha=alpha)
        least = self.measured.up(seen)
        goal = self.margin or least / 2
        text = (
            f"with {d.count} seeds a difference of {self.measured.format(least)}"
            " could have been seen"
        )
        if goal >= seen:
            return text
        need = seeds_needed(d.sd, goal, alpha=alpha)
        return (
            f"{text}; for {self.measured.as_given(goal)} run"
            f" {need if need <= MANY else f'more than {MANY:,}'}"
        )


def _basis(effect: Effect) -> str:
    share = f"{effect.used} of {effect.combinations} combinations"
    text = f" Averaged over {share} of the other factors"
    if effect.method == "additive":
        text = f" From {share}, as if no factors interacted"
    if lost := effect.seeds - effect.difference.count:
        text += f"; {lost} of {effect.seeds} seeds left out, for runs are missing"
    return f"{text}."


def _summary(
    every: Sequence[Runs], verdicts: list[Verdict], measured: Metric, margin: float | None
) -> str:
    """Which variants are better, worse, equivalent, and of which nothing was seen."""
    groups = {
        "better": "better",
        "worse": "worse",
        "equivalent": f"equivalent within {measured.as_given(margin) if margin else ''}",
        "unseen": "no difference was seen",
        "stopped": "stopped before the last seed, for it was worse",
        "unknown": "not compared",
    }
    components = []
    for outcome, text in groups.items():
        chosen = [v for v in verdicts if v.outcome == outcome]
        if outcome in ("better", "worse"):  # the largest difference first
            chosen.sort(key=lambda v: -abs(v.difference.mean))
        if chosen:
            components.append(f"{text}: {_names(v.name for v in chosen)}")
    lost = ["{} ({} of {})".format(runs.name, *runs.lost) for runs in every if runs.diverged]
    if lost:
        components.append(f"diverged: {', '.join(lost)}")
    if unfinished := sum(len(runs.unfinished) + len(runs.failed) for runs in every):
        total = sum(runs.total for runs in every)
        components.append(f"partial, for {unfinished} of {total} runs have not finished")
    found = "; ".join(components) or "there is nothing to compare"
    return f"Against {every[0].name} in {measured.name}: {found}."


def _names(names: Iterable[str]) -> str:
    """Names in a row; those of several factors, which hold commas, in quotes."""
    return ", ".join(f"'{name}'" if "," in name else name for name in names)
