"""Whether a published claim held in these runs.

A claim names two variants and what is expected of them; it is data, written before the runs:

    expect: {variant: placement=post, is: worse, than: baseline}   # worse, better, equal or
    no_worse; than: by default baseline

It holds where the runs show it at p <= alpha, it does not hold where they show the opposite, and
otherwise they do not
decide: too few runs prove nothing against a claim. Several expectations are one claim, which holds
where all of them do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import ConfigError, Fault, choices, listed, shown
from xformer_kit.study.answer import Runs, Words, missing
from xformer_kit.study.metric import Metric, format_p, metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.statistics import (
    ALPHA,
    PairedDifference,
    beyond,
    divergence,
    equivalence,
    holm,
    paired,
    significant,
)

HELD, NOT_HELD, OPEN = "held", "not held", "not decided"
SAID = {
    HELD: "The claim held.",
    NOT_HELD: "The claim did not hold.",
    OPEN: "The runs do not decide the claim.",
}
WITHIN = {"equal", "no_worse"}  # of a margin
WAYS = ("worse", "better", "equal", "no_worse")
KEYS = {"variant", "is", "than"}  # of an expectation


@dataclass(frozen=True)
class Claim:
    """outcome: held, not held or not decided."""

    outcome: str
    sentence: str
    differences: tuple[PairedDifference, ...]  # variant - than, one for each expectation
    ps: tuple[float | None, ...]  # of what decided, after Holm over the expectations


def faults(expect: Any, known: Sequence[str], baseline: str = "baseline") -> list[Fault]:
    """What is wrong with an expectation, or a list of them; `known`: the names of the variants, the
    baseline among them.
    """
    place = "study.claim.expect"
    if not isinstance(expect, list):
        return list(_of_expectation(expect, place, known, baseline))
    if not expect:
        return [Fault(place, "names no variant", fix="Try {variant: ..., is: worse}.")]
    each = (_of_expectation(one, f"{place}[{i}]", known, baseline) for i, one in enumerate(expect))
    return [fault for found in each for fault in found]


def _of_expectation(one: Any, path: str, known: Sequence[str], baseline: str) -> Iterator[Fault]:
    if not isinstance(one, Mapping) or not {"variant", "is"} <= one.keys() <= KEYS:
        yield Fault(
            path, f"must be {{variant: ..., is: {'|'.join(WAYS)}, than: ...}}", got=shown(one)
        )
        return
    names = {"than": baseline} | dict(one)
    for key in ("variant", "than"):
        if (name := names[key]) not in known:
            yield Fault(f"{path}.{key}", f"no variant is called {name!r}", fix=choices(name, known))
    if one["is"] not in WAYS:
        yield Fault(f"{path}.is", f"must be {listed(WAYS)}", got=shown(one["is"]))
    if names["than"] == one["variant"]:
        yield Fault(path, f"compares {one['variant']} with itself")


def held(
    expect: Node | Sequence[Node],
    runs: Mapping[str, Runs],
    measured: Metric | str,
    *,
    margin: float | None = None,
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
    tests = [
        _Test(one["is"], runs[one["variant"]], runs[one.get("than", baseline)], measured, margin)
        for one in ([expect] if isinstance(expect, Mapping) else expect)
    ]
    ps, apart = holm([test.p for test in tests]), holm([test.difference.p for test in tests])
    parts = [
        test.decided(p, other, len(tests)) for test, p, other in zip(tests, ps, apart, strict=True)
    ]
    outcomes = {outcome for outcome, _ in parts}
    outcome = next(one for one in (NOT_HELD, OPEN, HELD) if one in outcomes)
    return Claim(
        outcome,
        f"{SAID[outcome]} {' '.join(text for _, text in parts)}",
        tuple(test.difference for test in tests),
        tuple(ps),
    )


@dataclass
class _Test:
    """One expectation: the direction that the runs show, and its p."""

    way: str
    variant: Runs
    than: Runs
    measured: Metric
    margin: float | None

    def __post_init__(self):
        self.difference = d = paired(self.than.values, self.variant.values)
        self.p_lost, self.by_loss = self._lost()
        self.p, self.side = self._direction()
        self.by_margin = (
            self.way in WITHIN and bool(self.margin) and d.count > 1 and not self._outside()
        )
        if self.by_margin and self.way == "equal":
            self.p = equivalence(d, self.margin)
        elif self.by_margin:
            self.p = beyond(d, self.margin, self.measured.sign)

    def _lost(self) -> tuple[float | None, str | None]:
        """p that both diverge equally often, and the side of the variant by that; None if they
        do.
        """
        (a, of_a), (b, of_b) = self.than.lost, self.variant.lost
        if not (of_a and of_b) or a * of_b == b * of_a:
            return None, None
        p = divergence(self.than.lost, self.variant.lost)
        return p, "worse" if b / of_b > a / of_a else "better"

    def _direction(self) -> tuple[float | None, str | None]:
        """p of no difference, by figures and divergence, and the side that the variant is on; None:
        they disagree.
        """
        d, lost = self.difference, self.p_lost
        by_figures = None if d.p is None else self.measured.side(d.mean)
        if lost is None:
            return d.p, by_figures
        if d.p is None:
            return min(1.0, 2 * lost), self.by_loss
        if by_figures != self.by_loss and max(d.p, lost) <= ALPHA / 2:
            return 1.0, None
        return min(1.0, 2 * min(d.p, lost)), by_figures if d.p <= lost else self.by_loss

    def _outside(self) -> bool:
        """Whether the difference is shown to be larger than the margin, or one side to diverge more
        often; for what is to be no worse, on the side that is worse.
        """
        d = self.difference
        ends = {} if d.low is None else {1: d.low, -1: -d.high}
        sides = {sign for sign, end in ends.items() if end > self.margin}
        lost = self.p_lost is not None and 2 * self.p_lost <= ALPHA
        if self.way == "equal":
            return lost or bool(sides)
        return (lost and self.by_loss == "worse") or self.measured.sign in sides

    def decided(self, p: float | None, apart: float | None, family: int) -> tuple[str, str]:
        """p: of what decides; apart: of no difference. Both after Holm."""
        shown, d = significant(p), self.difference
        names = self.variant.name, self.than.name
        if self.way in WITHIN:
            outcome, seen = self._within(shown, significant(apart))
        elif shown and self.side is not None:
            outcome, seen = HELD if self.side == self.way else NOT_HELD, self.side
        else:
            outcome, seen = OPEN, self._undecided
        if shown and seen == self.by_loss and (d.p is None or self.p_lost < d.p):
            text = "{} is {seen} than {}, for it diverges {often} often ({p})."
            text = text.format(
                *names, seen=seen, often="more" if seen == "worse" else "less", p=format_p(p)
            )
        else:
            # What is better is not reported as within a margin, which it may well have left on that
            # side.
            p, p_margin = (apart, None if seen == "better" else p) if self.by_margin else (p, None)
            words = Words(self.measured, self.margin, family)
            text = words.compared(*names, seen, d, p, p_margin)
            if self.by_margin and outcome == OPEN and seen in ("better", "worse"):
                margin = self.measured.as_given(self.margin)
                text += f" That may be more than the margin of {margin}, or less."
        return outcome, " ".join([text, *missing(self.variant, self.than)])

    @property
    def _undecided(self) -> str:
        return "unknown" if self.difference.p is None else "unseen"

    def _within(self, shown: bool, differs: bool) -> tuple[str, str]:
        one_sided = self.way == "no_worse"
        if not self.by_margin:
            held = one_sided and self.side == "better"
            known = shown and self.side
            return (HELD if held else NOT_HELD, self.side) if known else (OPEN, self._undecided)
        side = self.measured.side(self.difference.mean) if differs else self._undecided
        if shown and one_sided:
            return HELD, side if differs else "no worse"
        return (HELD, "equivalent") if shown else (OPEN, side)  # and not known by how much
