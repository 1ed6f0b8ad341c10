"""Whether a published claim holds in the runs of a study.

A claim names two variants and the expected relation; it is written before the runs:

    expect: {variant: placement=post, is: worse, than: baseline}

`is` is worse, better, equal or no_worse; `than` is the baseline by default. The claim holds if the
expected relation is significant (p <= alpha), and it does not hold if the opposite is significant.
Otherwise it is inconclusive: too few runs prove nothing against a claim. A list of expectations is
one claim, which holds if all of them do.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import ConfigError, Fault, suggestion
from xformer_kit.study.answer import Runs, missing_runs
from xformer_kit.study.factor import BASELINE
from xformer_kit.study.metric import Metric, format_p
from xformer_kit.study.nodes import Node
from xformer_kit.study.statistics import (
    ALPHA,
    Difference,
    difference,
    divergence_p,
    equivalence_p,
    holm,
    one_sided_p,
    significant,
)
from xformer_kit.study.wording import Wording

HELD, NOT_HELD, INCONCLUSIVE = "held", "not held", "inconclusive"
OUTCOME_SENTENCES = {
    HELD: "The claim held.",
    NOT_HELD: "The claim did not hold.",
    INCONCLUSIVE: "The claim is inconclusive.",
}
WITHIN_MARGIN = {"equal", "no_worse"}  # relations that are tested with a margin
RELATIONS = ("worse", "better", "equal", "no_worse")
KEYS = {"variant", "is", "than"}  # of an expectation


@dataclass(frozen=True)
class Claim:
    """outcome: held, not held or inconclusive."""

    outcome: str
    sentence: str
    differences: tuple[Difference, ...]  # variant - than, one for each expectation
    ps: tuple[float | None, ...]  # Holm-corrected p of each expectation's deciding test


def expectations(expect: Node | Sequence[Node]) -> Sequence[Node]:
    """The expectations of a claim, which is one or a list of them."""
    return [expect] if isinstance(expect, Mapping) else expect


def faults(expect: Any, names: Collection[str]) -> list[Fault]:
    """The faults of an expectation or a list of them. names: those of all variants."""
    path = "study.claim.expect"
    if not isinstance(expect, list):
        return list(_expectation_faults(expect, path, names))
    return [
        fault
        for i, one in enumerate(expect)
        for fault in _expectation_faults(one, f"{path}[{i}]", names)
    ]


def _expectation_faults(one: Any, path: str, names: Collection[str]) -> Iterator[Fault]:
    """The faults of one expectation."""
    relations = "|".join(RELATIONS)
    rule = f"must be {{variant: ..., is: {relations}, than: ...}}"
    if not isinstance(one, Mapping) or not {"variant", "is"} <= one.keys() <= KEYS:
        yield Fault(path, rule, one)
        return
    pair = {"than": BASELINE} | dict(one)
    for key in ("variant", "than"):
        if (name := pair[key]) not in list(names):  # a name of another type is unknown
            yield Fault(
                f"{path}.{key}", f"no variant is called {name!r}", fix=suggestion(name, names)
            )
    if one["is"] not in RELATIONS or pair["than"] == one["variant"]:
        yield Fault(path, f"{rule}, with two variants", one)


def evaluate(
    expect: Node | Sequence[Node],
    runs: Mapping[str, Runs],
    measured: Metric,
    *,
    margin: float | None = None,
) -> Claim:
    """Tests a claim. runs: name -> Runs of every variant.

    worse, better: paired t test over common seeds. A run that diverged has no value, but diverging
    is worse: if one side diverges more often, Fisher's exact test is added to the t test, and the
    smaller p is doubled (Bonferroni). If both are significant in opposite directions, the claim is
    inconclusive.
    equal: two one-sided tests with the margin. It does not hold if the interval lies outside the
    margin or one side diverges more often. Without a margin a difference can be shown, but not
    equivalence.
    no_worse: the one-sided test against a worse value (non-inferiority). It does not hold if the
    interval lies beyond the margin on the worse side or the variant diverges more often. Without a
    margin it holds only if the variant is better.

    Raises ConfigError for a faulty expectation.
    """
    if wrong := faults(expect, runs):
        raise ConfigError(wrong)
    tests = [
        _ExpectationTest(
            one["is"], runs[one["variant"]], runs[one.get("than", BASELINE)], measured, margin
        )
        for one in expectations(expect)
    ]
    ps = holm([test.p for test in tests])
    results = [
        test.result(p, p_difference, len(tests))
        for test, p, p_difference in zip(
            tests, ps, holm([test.difference.p for test in tests]), strict=True
        )
    ]
    outcomes = {outcome for outcome, _ in results}
    outcome = next(one for one in (NOT_HELD, INCONCLUSIVE, HELD) if one in outcomes)
    return Claim(
        outcome,
        f"{OUTCOME_SENTENCES[outcome]} {' '.join(text for _, text in results)}",
        tuple(test.difference for test in tests),
        tuple(ps),
    )


@dataclass
class _ExpectationTest:
    """The test of one expectation: p, and the side (better or worse) of the variant."""

    relation: str
    variant: Runs
    than: Runs
    metric: Metric
    margin: float | None

    def __post_init__(self):
        self.difference = d = difference(self.than.values, self.variant.values)
        self.divergence_p, self.divergence_side = self._divergence()
        self.p, self.side = self._direction()
        self.by_margin = (
            self.relation in WITHIN_MARGIN
            and bool(self.margin)
            and d.count > 1
            and not self._outside_margin()
        )
        if self.by_margin and self.relation == "equal":
            self.p = equivalence_p(d, self.margin)
        elif self.by_margin:
            self.p = one_sided_p(d, self.margin, self.metric.sign)

    def _divergence(self) -> tuple[float | None, str | None]:
        """(p of equal divergence rates, side of the variant by divergence); None if the rates are
        equal.
        """
        (a, of_a), (b, of_b) = self.than.diverged_of, self.variant.diverged_of
        if not (of_a and of_b) or a * of_b == b * of_a:
            return None, None
        p = divergence_p(self.than.diverged_of, self.variant.diverged_of)
        return p, "worse" if b / of_b > a / of_a else "better"

    def _direction(self) -> tuple[float | None, str | None]:
        """(p of no difference in values and divergence, side of the variant); side None: both are
        significant and disagree.
        """
        d, by_divergence = self.difference, self.divergence_p
        value_side = None if d.p is None else self.metric.side(d.mean)
        if by_divergence is None:
            return d.p, value_side
        if d.p is None:
            return min(1.0, 2 * by_divergence), self.divergence_side
        if value_side != self.divergence_side and max(d.p, by_divergence) <= ALPHA / 2:
            return 1.0, None
        side = value_side if d.p <= by_divergence else self.divergence_side
        return min(1.0, 2 * min(d.p, by_divergence)), side

    def _outside_margin(self) -> bool:
        """Whether the interval lies outside the margin, or one side diverges significantly more
        often; for no_worse only on the worse side.
        """
        d = self.difference
        ends = {} if d.low is None else {1: d.low, -1: -d.high}
        sides = {sign for sign, end in ends.items() if end > self.margin}
        diverges = self.divergence_p is not None and 2 * self.divergence_p <= ALPHA
        if self.relation == "equal":
            return diverges or bool(sides)
        return (diverges and self.divergence_side == "worse") or self.metric.sign in sides

    def result(self, p: float | None, p_difference: float | None, family: int) -> tuple[str, str]:
        """(outcome, sentence). p: of the deciding test; p_difference: of no difference. Both are
        Holm-corrected.
        """
        decided, d = significant(p), self.difference
        names = self.variant.name, self.than.name
        if self.relation in WITHIN_MARGIN:
            outcome, relation = self._within_margin(decided, significant(p_difference))
        elif decided and self.side is not None:
            outcome = HELD if self.side == self.relation else NOT_HELD
            relation = self.side
        else:
            outcome, relation = INCONCLUSIVE, self._inconclusive_relation
        if (
            decided
            and relation == self.divergence_side
            and (d.p is None or self.divergence_p < d.p)
        ):
            often = "more" if relation == "worse" else "less"
            text = (
                f"{names[0]} is {relation} than {names[1]} because it diverges {often} often"
                f" ({format_p(p)})."
            )
        else:
            # A better variant may be outside of the margin on the better side.
            p_margin = p if self.by_margin and relation != "better" else None
            p = p_difference if self.by_margin else p
            text = Wording(self.metric, self.margin, family).compared(
                *names, relation, d, p, p_margin
            )
            if self.by_margin and outcome == INCONCLUSIVE and relation in ("better", "worse"):
                margin = self.metric.format_exact(self.margin)
                text += f" Whether it exceeds the margin of {margin} is inconclusive."
        return outcome, " ".join([text, *missing_runs(self.variant, self.than)])

    @property
    def _inconclusive_relation(self) -> str:
        """The relation of two variants between which no test is significant."""
        return "unknown" if self.difference.p is None else "not significant"

    def _within_margin(self, decided: bool, differs: bool) -> tuple[str, str]:
        """(outcome, relation of the variant) of `equal` and `no_worse`."""
        one_sided = self.relation == "no_worse"
        if not self.by_margin:
            held = one_sided and self.side == "better"
            known = decided and self.side
            return (
                (HELD if held else NOT_HELD, self.side)
                if known
                else (INCONCLUSIVE, self._inconclusive_relation)
            )
        side = self.metric.side(self.difference.mean) if differs else self._inconclusive_relation
        if decided and one_sided:
            return HELD, side if differs else "no worse"
        return (HELD, "equivalent") if decided else (INCONCLUSIVE, side)
