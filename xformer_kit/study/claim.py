"""Whether a published claim held in these runs.

A claim names two variants and what is expected of them; it is data, written before the runs:

    expect: {variant: placement=post, is: worse, than: baseline}   # worse, better, equal or
    no_worse; than: by default baseline

It holds where the runs show it at p <= alpha, it does not hold where they show the opposite, and
otherwise they do not
decide: too few runs prove nothing against a claim. Several expectations are one claim, which holds
where all of them do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import ConfigError, Fault, choices, shown
from xformer_kit.study.answer import Runs, Words, missing
from xformer_kit.study.metric import Metric, format_p, metric
from xformer_kit.study.statistics import (
    ROUNDING,
    PairedDifference,
    beyond,
    divergence,
    equivalence,
    holm,
    paired,
)

HELD, NOT_HELD, OPEN = "held", "not held", "not decided"
SAID = {
    HELD: "The claim held.",
    NOT_HELD: "The claim did not hold.",
    OPEN: "The runs do not decide the claim.",
}
WITHIN = {"equal", "no_worse"}  # of a margin
WAYS = ("worse", "better", "equal", "no_worse")


@dataclass(frozen=True)
class Claim:
    """outcome: held, not held or not decided."""

    outcome: str
    sentence: str
    differences: tuple[PairedDifference, ...]  # variant - than, one for each expectation
    ps: tuple[float | None, ...]  # of what decided, after Holm over the expectations


@dataclass(frozen=True)
class Expectation:
    """`variant` is worse than, better than, equal to or no worse than `than`."""

    variant: str
    way: str
    than: str


def faults(expect: Any, known: Sequence[str], baseline: str = "baseline") -> list[Fault]:
    """What is wrong with an expectation, or a list of them; `known`: the names of the variants, the
    baseline among them.
    """
    found = []
    several = isinstance(expect, list)
    if several and not expect:
        return [
            Fault("study.claim.expect", "names no variant", fix="Try {variant: ..., is: worse}.")
        ]
    for i, one in enumerate(expect if several else [expect]):
        path = f"study.claim.expect[{i}]" if several else "study.claim.expect"
        if not isinstance(one, Mapping) or not {"variant", "is"} <= one.keys() <= {
            "variant",
            "is",
            "than",
        }:
            found.append(
                Fault(
                    path,
                    f"must be {{variant: ..., is: {'|'.join(WAYS)}, than: ...}}",
                    got=shown(one),
                )
            )
            continue
        names = {"than": baseline} | dict(one)
        for key in ("variant", "than"):
            if names[key] not in known:
                found.append(
                    Fault(
                        f"{path}.{key}",
                        f"no variant is called {names[key]!r}",
                        fix=choices(names[key], known),
                    )
                )
        if one["is"] not in WAYS:
            found.append(
                Fault(
                    f"{path}.is",
                    f"must be {', '.join(WAYS[:-1])} or {WAYS[-1]}",
                    got=shown(one["is"]),
                )
            )
        if names["than"] == one["variant"]:
            found.append(Fault(path, f"compares {one['variant']} with itself"))
    return found


def held(
    expect: Mapping[str, str] | Sequence[Mapping[str, str]],
    runs: Mapping[str, Runs],
    measured: Metric | str,
    *,
    margin: float | None = None,
    level: float = 0.95,
    baseline: str = "baseline",
) -> Claim:
    """runs: name -> Runs of every variant that the claim names; `than` is `baseline` where the
    claim leaves it out.

    worse, better: by the paired t over common seeds. A run that diverges has no figure, but to
    diverge is worse: where one side diverges more often, Fisher's exact test is added to the t,
    and the smaller p counts twice (Bonferroni). Where the two point to different sides at p <=
    alpha, nothing is decided.
    equal: by the two one-sided tests of the margin. It does not hold where the interval lies
    outside the margin or one side diverges more often. Without a margin equality cannot be shown; a
    difference can.
    no_worse: by the one of the two that is about what is worse, so that what is better is no worse.
    It does not hold where the interval lies beyond the margin on that side or the variant diverges
    more often. Without a margin only what is better is known to be no worse. Raises ConfigError for
    an expectation at fault.
    """
    measured = metric(measured)
    if wrong := faults(expect, list(runs), baseline):
        raise ConfigError(wrong)
    several = [expect] if isinstance(expect, Mapping) else expect
    expectations = [
        Expectation(one["variant"], one["is"], one.get("than", baseline)) for one in several
    ]
    tests = [_Test(one, runs, measured, margin, level) for one in expectations]
    ps, apart = holm([test.p for test in tests]), holm([test.difference.p for test in tests])
    parts = [
        test.decided(p, other, len(tests)) for test, p, other in zip(tests, ps, apart, strict=True)
    ]
    outcomes = {outcome for outcome, _ in parts}
    outcome = NOT_HELD if NOT_HELD in outcomes else OPEN if OPEN in outcomes else HELD
    sentence = f"{SAID[outcome]} {' '.join(text for _, text in parts)}"
    return Claim(outcome, sentence, tuple(test.difference for test in tests), tuple(ps))


class _Test:
    """One expectation: the direction that the runs show, and its p."""

    def __init__(
        self,
        one: Expectation,
        runs: Mapping[str, Runs],
        measured: Metric,
        margin: float | None,
        level: float,
    ):
        self.one = one
        self.measured = measured
        self.margin = margin
        self.level = level
        self.variant = runs[one.variant]
        self.than = runs[one.than]
        self.difference = paired(self.than.values, self.variant.values, level)
        self.p_lost, self.lost_more = self._lost()
        self.p, self.way = self._direction()
        self.worse = 1 if measured.better(-1.0) else -1  # the sign of a difference for the worse
        self.by_margin = (
            one.way in WITHIN and bool(margin) and self.difference.count > 1 and not self._outside()
        )
        if self.by_margin and one.way == "equal":
            self.p = equivalence(self.difference, margin)
        elif self.by_margin:
            self.p = beyond(self.difference, margin, self.worse)

    def _lost(self) -> tuple[float | None, bool]:
        """p that both diverge equally often, None where they do, and whether the variant does so
        more often.
        """
        a, b = self.than, self.variant
        if not (a.ended and b.ended) or len(a.diverged) * b.ended == len(b.diverged) * a.ended:
            return None, False
        p = divergence((len(a.diverged), a.ended), (len(b.diverged), b.ended))
        return p, len(b.diverged) / b.ended > len(a.diverged) / a.ended

    def _direction(self) -> tuple[float | None, str | None]:
        """p of no difference, by figures and divergence, and the side that the variant is on; None:
        they disagree.
        """
        d, alpha = self.difference, 1 - self.level
        by_figures = None if d.p is None else "better" if self.measured.better(d.mean) else "worse"
        if self.p_lost is None:
            return d.p, by_figures
        by_loss = "worse" if self.lost_more else "better"
        if d.p is None:
            return min(1.0, 2 * self.p_lost), by_loss
        if by_figures != by_loss and max(d.p, self.p_lost) <= alpha / 2:
            return 1.0, None
        return min(1.0, 2 * min(d.p, self.p_lost)), by_figures if d.p <= self.p_lost else by_loss

    def _outside(self) -> bool:
        """Whether the difference is shown to be larger than the margin, or one side to diverge more
        often; for what is to be no worse, on the side that is worse.
        """
        d, alpha = self.difference, 1 - self.level
        ends = {} if d.low is None else {1: d.low, -1: -d.high}
        sides = {sign for sign, end in ends.items() if end > self.margin}
        lost = self.p_lost is not None and 2 * self.p_lost <= alpha
        if self.one.way == "equal":
            return lost or bool(sides)
        return (lost and self.lost_more) or self.worse in sides

    def decided(self, p: float | None, apart: float | None, family: int) -> tuple[str, str]:
        """p: of what decides; apart: of no difference. Both after Holm."""
        shown, differs = (x is not None and x <= 1 - self.level + ROUNDING for x in (p, apart))
        words = Words(self.measured, self.level, self.margin, family)
        if self.one.way in WITHIN:
            outcome, seen = self._within(shown, differs)
        elif shown and self.way is not None:
            outcome, seen = HELD if self.way == self.one.way else NOT_HELD, self.way
        else:
            outcome, seen = OPEN, "unknown" if self.difference.p is None else "unseen"
        by_loss = (
            shown and self.p_lost is not None and seen == ("worse" if self.lost_more else "better")
        )
        if by_loss and (self.difference.p is None or self.p_lost < self.difference.p):
            often = "more" if self.lost_more else "less"
            text = (
                f"{self.one.variant} is {seen} than {self.one.than}, for it diverges {often} often"
                f" ({format_p(p)})."
            )
        else:
            # What is better is not reported as within a margin, which it may well have left on that
            # side.
            p, p_margin = (apart, None if seen == "better" else p) if self.by_margin else (p, None)
            text = words.compared(
                self.one.variant, self.one.than, seen, self.difference, p, p_margin
            )
            if self.by_margin and outcome == OPEN and seen in ("better", "worse"):
                text += (
                    f" That may be more than the margin of {self.measured.as_given(self.margin)},"
                    " or less."
                )
        return outcome, " ".join([text, *missing(self.variant, self.than)])

    def _within(self, shown: bool, differs: bool) -> tuple[str, str]:
        d, one_sided = self.difference, self.one.way == "no_worse"
        known = "unknown" if d.p is None else "unseen"
        if not self.by_margin:
            held = one_sided and self.way == "better"
            return (HELD if held else NOT_HELD, self.way) if shown and self.way else (OPEN, known)
        side = ("better" if self.measured.better(d.mean) else "worse") if differs else known
        if shown and one_sided:
            return HELD, side if differs else "no worse"
        return (HELD, "equivalent") if shown else (OPEN, side)  # and not known by how much
