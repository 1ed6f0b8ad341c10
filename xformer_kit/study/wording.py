"""Sentences on one comparison: effect size, confidence interval, p-value and detectable effect."""

from dataclasses import dataclass

from xformer_kit.study.metric import Metric, format_p
from xformer_kit.study.power import minimum_detectable_effect, seeds_needed
from xformer_kit.study.statistics import (
    ALPHA,
    SIGNIFICANT_P,
    Difference,
    Estimate,
    magnitude,
    significant,
)

MAX_SEEDS = 1000  # larger numbers of seeds are not printed


@dataclass(frozen=True)
class Wording:
    """Formats comparisons in one metric that are corrected as one family."""

    metric: Metric
    margin: float | None
    family: int  # comparisons whose p-values are corrected together

    def outcome(
        self, difference: Difference, p: float | None, p_margin: float | None = None
    ) -> str:
        """better, worse, equivalent, not significant or unknown."""
        if p is None:
            return "unknown"
        if significant(p):
            return self.metric.side(difference.mean)
        return "equivalent" if significant(p_margin) else "not significant"

    def compared(
        self,
        name: str,
        other: str,
        outcome: str,
        d: Difference,
        p: float | None,
        p_margin: float | None = None,
        be: str = "is",
    ) -> str:
        """A sentence on the difference name - other. p and p_margin: Holm-corrected."""
        margin = self.metric.format_exact(self.margin) if self.margin else ""
        within = f"within the margin of {margin}" if significant(p_margin) else ""
        if d.method not in ("t", "bootstrap", "welch"):
            return self._compared_without_t_test(
                name, other, d, p, f", {within}" if within else "", be
            )
        if outcome in ("better", "worse"):
            size, interval = self._estimate_text(magnitude(d))
            return (
                f"{name} {be} {outcome} than {other} by {size} ({interval}, {_runs_text(d)},"
                f" {self._p_text(p)}){within and ', but ' + within}."
            )
        if outcome == "no worse":
            return (
                f"{name} {be} non-inferior to {other} within the margin of {margin} (difference"
                f" {self._difference_text(d)}; non-inferiority test, {self._p_text(p_margin)})."
            )
        if outcome == "equivalent":
            return (
                f"{name} and {other} are equivalent {within} (difference"
                f" {self._difference_text(d)}; equivalence test, {self._p_text(p_margin)})."
            )
        return self.not_significant(f"The difference between {name} and {other}", d, p)

    def _compared_without_t_test(
        self, name: str, other: str, d: Difference, p: float | None, within: str, be: str
    ) -> str:
        """A sentence on a difference that the t test does not apply to; see its `method`."""
        if d.method == "no seed":
            return f"{name} and {other} have no finished seed in common: they are not compared."
        if d.method == "constant":
            size, runs = self.signed(d.mean), _runs_text(d)
            return (
                f"The means of {name} and {other} differ by {size} ({runs}); no test is possible:"
                " run at least 5 seeds."
            )
        if d.method == "equal":
            return f"{name} and {other} have identical values at all {d.count} seeds{within}."
        if d.method == "one seed":  # which may differ by more than the variants do
            return (
                f"The difference between {name} and {other} is {self.signed(d.mean)} at the only"
                " common seed; no test is possible: run at least 5 seeds."
            )
        text = f"{name} equals {other}"
        if d.mean:
            size = self.metric.format(abs(d.mean))
            text = f"{name} {be} {self.metric.side(d.mean)} than {other} by {size}"
        test = self._p_text(p) + ": not significant, too few seeds" * (not significant(p))
        return f"{text} at each of {d.count} seeds (sign test, {test}){within}."

    def below_noise(self, outcome: str, d: Difference, noise: float | None) -> list[str]:
        """A sentence if a difference that is significant is smaller than the standard deviation of
        one run of the baseline, so that two single runs often show the opposite.
        """
        if noise is None or outcome not in ("better", "worse") or abs(d.mean) >= noise:
            return []
        size = self.metric.format(noise)
        return [f"This is smaller than the noise of one run (standard deviation {size})."]

    def not_significant(self, subject: str, d: Difference, p: float | None) -> str:
        """The sentence on a difference that is not significant, with its power."""
        uncorrected = f"{format_p(d.p, SIGNIFICANT_P)}, " if self.loses_significance(d) else ""
        return (
            f"{subject} is not significant{self.after_correction(d)} ({self._difference_text(d)},"
            f" {uncorrected}{self._p_text(p)}); {self._power_text(d)}."
        )

    def loses_significance(self, d: Difference) -> bool:
        """Whether a difference that is not significant would be, as the only comparison: its
        confidence interval, which is not corrected, then excludes 0.
        """
        return self.family > 1 and significant(d.p)

    def after_correction(self, d: Difference) -> str:
        """The correction by which a difference loses its significance; empty if it has none."""
        text = f" after correction for {self.family} comparisons"
        return text if self.loses_significance(d) else ""

    def size(self, d: Difference) -> str:
        """The size of a difference, with the decimals that its interval supports: 0.56 nats."""
        if d.low is None:
            return self.metric.format(abs(d.mean))
        return self._estimate_text(magnitude(d))[0]

    def signed(self, difference: float) -> str:
        """A difference that no test has compared with chance: +0.56 nats."""
        sign = "+" if difference > 0 else "-" if difference < 0 else ""
        return f"{sign}{self.metric.format(abs(difference))}"

    def _difference_text(self, d: Difference) -> str:
        mean, interval = self._estimate_text(d)
        return f"{mean}, {interval}, {_runs_text(d)}"

    def _p_text(self, p: float) -> str:
        """p, marked if it is corrected."""
        return "Holm-corrected " * (self.family > 1) + format_p(p, SIGNIFICANT_P)

    def _estimate_text(self, found: Difference | Estimate) -> tuple[str, str]:
        """(value, interval) of a difference, with the unit."""
        text, span = self.metric.estimate(found, unit=True)
        return text, f"95 % CI {span}"

    def _power_text(self, d: Difference) -> str:
        """minimum detectable effect 0.012 nats; 15 seeds would detect 0.006 nats

        The second effect is the margin, or half of the minimum detectable effect. It is never the
        measured difference, whose power adds nothing to its p-value (Hoenig and Heisey, 2001).
        """
        alpha = ALPHA / max(1, self.family)  # Holm's level for the smallest p-value
        detected = minimum_detectable_effect(d.sd, d.count, alpha=alpha)
        rounded = self.metric.round_up(detected)
        goal = self.margin or rounded / 2
        text = f"minimum detectable effect {self.metric.format(rounded)}"
        if goal >= detected:
            return text
        needed = seeds_needed(d.sd, goal, alpha=alpha)
        seeds = needed if needed <= MAX_SEEDS else f"more than {MAX_SEEDS:,}"
        return f"{text}; {seeds} seeds would detect {self.metric.format_exact(goal)}"


def _runs_text(d: Difference) -> str:
    """5 seeds; or 4 and 5 runs, which share no seed"""
    if d.runs is None:
        return f"{d.count} seeds"
    plural = "s" * (max(d.runs) > 1)
    return f"{d.runs[1]} and {d.runs[0]} run{plural}, which are not paired by seed"
