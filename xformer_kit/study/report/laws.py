"""The scaling laws of a ladder: one per variant, what it predicts beyond the ladder, and how far
the laws lie apart.

A ladder's results are those of its rungs. The rest of a report is about the top one; the laws are
about all.
"""

from dataclasses import dataclass, replace

from xformer_kit.study.ladder import axis
from xformer_kit.study.metric import Metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.report.numbers import compact
from xformer_kit.study.report.variants import VariantResult, variants
from xformer_kit.study.results import Results, rung_name
from xformer_kit.study.scaling import Law, Optimum, Point, fit
from xformer_kit.study.statistics import Estimate, Interval, magnitude

RESAMPLES = 400


@dataclass(frozen=True)
class LadderStep:
    """A variant on one rung, at its best point of tuning."""

    rung: str  # model.dim=96 x10
    multiple: float
    parameters: float
    tokens: float
    flops: float
    interval: Interval
    values: tuple[float, ...]  # of the runs that finished
    runs: int

    @property
    def per(self) -> float:
        """Training FLOPs of a parameter and token."""
        return self.flops / (self.parameters * self.tokens)


@dataclass(frozen=True)
class VariantLaw:
    """A variant on the whole ladder. `law` is None if its runs identify none, for the reason
    `why`.
    """

    name: str
    label: str
    steps: list[LadderStep]
    law: Law | None = None
    why: str = ""
    there: Estimate | None = None  # beyond the ladder
    gap: Estimate | None = None  # its law minus the baseline's there; None for the baseline
    best: Optimum | None = None  # at the top rung's compute; None for a law of one axis

    @property
    def predicts(self) -> bool:
        """Whether its runs determine every number of its law."""
        return self.law is not None and not self.law.at_bounds

    @property
    def per(self) -> float:
        """The median over the steps of the training FLOPs of a parameter and token."""
        return sorted(step.per for step in self.steps)[len(self.steps) // 2]

    @property
    def finished(self) -> int:
        return sum(len(step.values) for step in self.steps)


@dataclass(frozen=True)
class Laws:
    """All variants, the baseline first, and where their laws are evaluated: beyond the largest size
    of the baseline.
    """

    each: list[VariantLaw]
    metric: Metric
    parameters: float
    tokens: float
    flops: float  # of the baseline's top rung
    ahead: float
    multiples: list[float]
    top: str  # the rung of the most computation
    epochs: float  # of the longest run


def rungs(results: Results) -> list[Results]:
    """The results of each rung, from the bottom to the top; a study without rungs is one."""
    places: dict[str | None, list[int]] = {}
    for i, variant in enumerate(results.variants):
        places.setdefault(rung_name(variant), []).append(i)
    return [results.only(kept) for kept in places.values()]


def top(results: Results) -> Results:
    """The rung of the most computation by the baseline; the results themselves without rungs."""
    found = rungs(results)
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda one: one.variants[0]["cost"]["flops"])


def laws(results: Results) -> Laws | None:
    """None for a study without rungs."""
    parts = rungs(results)
    if len(parts) < 2:
        return None
    steps: dict[str, list[LadderStep]] = {}
    for part in parts:
        for variant in variants(part, results.metric):
            steps.setdefault(variant.label, []).append(_step(part.variants[0]["rung"], variant))
    base = next(iter(steps.values()))
    multiples = sorted({step.multiple for step in base})
    ahead = results.study["design"]["ahead"]
    parameters = ahead * max(step.parameters for step in base)
    highest = max(base, key=lambda step: step.flops)
    at = (parameters, parameters * multiples[-1])
    names = {variant["label"]: variant["name"] for variant in results.variants}
    each: list[VariantLaw] = []
    for label, mine in steps.items():
        each.append(_fitted(VariantLaw(names[label], label, mine), at, highest.flops, each))
    return Laws(
        each,
        results.metric,
        *at,
        highest.flops,
        ahead,
        multiples,
        highest.rung,
        max(variant["cost"].get("epochs", 0.0) for variant in results.variants),
    )


def _step(rung: Node, variant: VariantResult) -> LadderStep:
    params, tokens, flops = (
        float(variant.cost[name] or 0) for name in ("params", "tokens", "flops")
    )
    runs = variant.runs
    values = tuple(runs.values[seed] for seed in sorted(runs.values))
    size = (rung["name"], rung["multiple"], params, tokens, flops)
    return LadderStep(*size, variant.best.interval, values, runs.total)


def _fitted(
    one: VariantLaw, at: tuple[float, float], flops: float, before: list[VariantLaw]
) -> VariantLaw:
    points = [
        Point(step.parameters, step.tokens, value) for step in one.steps for value in step.values
    ]
    of = axis(step.multiple for step in one.steps)
    try:
        # With a seed of its own, so that the difference of two laws is one of independent draws.
        law = fit(points, of, resamples=RESAMPLES, seed=len(before))
    except ValueError as error:
        return replace(one, why=str(error))
    first = before[0].law if before else None
    return replace(
        one,
        law=law,
        there=law.predict(*at),
        gap=law.gap(first, *at) if first else None,
        best=None if None in (law.A, law.B) else law.optimal(flops, one.per),
    )


def answered(found: Laws) -> str:
    """What the laws predict beyond the ladder."""
    known = [one for one in found.each if one.predicts]
    if not known:
        return "The runs show no law yet."
    each = ", ".join(f"{one.name} {_prediction(one.there, found.metric)}" for one in known)
    return (
        f"Extrapolated to {found.ahead:g} times the largest size, the laws predict"
        f" {found.metric.name}: {each}."
    )


def sentences(found: Laws) -> list[str]:
    """On each variant: its law, and what it predicts."""
    return [_sentence(one, found) for one in found.each]


def _sentence(one: VariantLaw, found: Laws) -> str:
    law = one.law
    if law is None:
        return f"{one.name} has no law yet. {one.why}"
    text = f"{one.name} follows {equation(law)} ({_exponents(law)}; {law.points} runs)."
    if law.at_bounds:
        which = " and ".join(law.at_bounds)
        return (
            f"{text} The runs do not determine {which}, so the law predicts nothing: take more"
            " seeds, or sizes further apart."
        )
    where = (
        f"{found.ahead:g} times the largest size, {compact(found.parameters)} parameters and"
        f" {compact(found.tokens)} tokens"
    )
    there = _prediction(one.there, found.metric)
    text += f" At {where}, the law predicts {there}: an extrapolation."
    return f"{text} {_difference(one, found)}".rstrip()


def _difference(one: VariantLaw, found: Laws) -> str:
    base, gap = found.each[0], one.gap
    if gap is None or not base.predicts:
        return ""
    way = "above" if gap.mean > 0 else "below"
    size, span = found.metric.estimate(magnitude(gap), unit=True)
    unsure = ", which may be none" * (gap.low * gap.high <= 0)
    return f"That is {size} {way} the law of {base.name} (95 % interval {span}){unsure}."


def equation(law: Law) -> str:
    """L(N, D) = 1.69 + 406 N^-0.34 + 411 D^-0.28"""
    known = {"N": (law.A, law.alpha), "D": (law.B, law.beta)}
    axes = {letter: numbers for letter, numbers in known.items() if numbers[0] is not None}
    floor = law.E if law.E >= 0.005 else 0  # two digits after the point, as its interval
    terms = (f" + {factor:.3g} {letter}^-{power:.2f}" for letter, (factor, power) in axes.items())
    return f"L({', '.join(axes)}) = {floor:.3g}{''.join(terms)}"


def _exponents(law: Law) -> str:
    return ", ".join(
        f"{name} {getattr(law, name):.2f} [{low:.2f}, {high:.2f}]"
        for name, (low, high) in law.intervals.items()
        if name in ("E", "alpha", "beta")
    )


def _prediction(found: Estimate, metric: Metric) -> str:
    loss, span = metric.estimate(found, unit=True)
    return f"{loss} (95 % interval {span})"


def notes(found: Laws) -> list[str]:
    """What the laws are of, and what they rest on."""
    one = len(found.multiples) == 1
    text = [
        "Each law is fitted to all runs of a variant that finished, whatever their seed"
        + (f": L(N) along D = {found.multiples[0]:g} N." if one else ", in N and D at once.")
        + " N: parameters, embeddings among them; D: tokens that were read, padding included."
        " Intervals at 95 % are those of the residual bootstrap; they hold as far as the law"
        " does, and beyond the largest size nothing was run (in simulations of true laws, 89 to"
        " 93 % of them hold at 10 times that size). They are not corrected for the number of"
        " variants."
    ]
    if found.epochs > 1:
        text.append(
            f"The longest run read its data {found.epochs:.1f} times. Tokens that come again teach"
            " less than new ones (Muennighoff et al., 2023, arXiv:2305.16264), so a law of new"
            " tokens falls faster."
        )
    return text
