"""What does a ladder say? A law for each variant, what it predicts beyond the ladder, and how far
the laws lie apart.

A ladder's results are those of its rungs. The rest of a report is about the top one; the laws are
about all.
"""

from dataclasses import dataclass, replace

from xformer_kit.study.figures import Metric, decimals
from xformer_kit.study.ladder import axis
from xformer_kit.study.report.arms import Arm, arms
from xformer_kit.study.report.said import compact
from xformer_kit.study.results import Results
from xformer_kit.study.scaling import AXES, Law, Optimum, Point, Prediction, fit
from xformer_kit.study.statistics import Interval

RESAMPLES = 400


@dataclass(frozen=True)
class Step:
    """A variant on one rung, at its best point of tuning."""

    rung: str  # model.dim=96 x10
    multiple: float
    parameters: float
    tokens: float
    flops: float
    interval: Interval
    values: tuple[float, ...]  # of the runs that finished
    runs: int


@dataclass(frozen=True)
class Climb:
    """A variant on the whole ladder. `law` is None where its runs identify none, and `why` says
    so.
    """

    name: str
    label: str
    steps: list[Step]
    law: Law | None
    why: str
    there: Prediction | None  # beyond the ladder
    gap: Prediction | None  # of its law to the baseline's there; None for the baseline
    best: Optimum | None  # of as much compute as the top rung takes; None for a law of one axis

    @property
    def predicts(self) -> bool:
        """Whether its runs tell every number of its law."""
        return self.law is not None and not self.law.at_bounds


@dataclass(frozen=True)
class Laws:
    """All variants, the baseline first, and where their laws are asked: beyond the largest size of
    the baseline.
    """

    climbs: list[Climb]
    parameters: float
    tokens: float
    flops: float  # of the baseline's top rung
    ahead: float
    multiples: list[float]
    top: str  # the rung of the most computation
    epochs: float  # of the longest run


def rungs(results: Results) -> list[Results]:
    """The results of each rung, from the bottom to the top; a study without rungs is one."""
    names = dict.fromkeys((v.get("rung") or {}).get("said") for v in results.variants)
    return [
        _only(results, {i for i, v in enumerate(results.variants) if _said(v) == name})
        for name in names
    ]


def top(results: Results) -> Results:
    """The rung of the most computation by the baseline; the results themselves without rungs."""
    found = rungs(results)
    return (
        found[0] if len(found) < 2 else max(found, key=lambda one: one.variants[0]["cost"]["flops"])
    )


def _said(variant) -> str | None:
    return (variant.get("rung") or {}).get("said")


def _only(results: Results, kept: set[int]) -> Results:
    place = {old: new for new, old in enumerate(sorted(kept))}
    variants = [results.variants[i] for i in place]
    outcomes = [
        replace(o, variant=place[o.variant]) for o in results.outcomes if o.variant in place
    ]
    return replace(results, variants=variants, outcomes=outcomes)


def laws(results: Results, measured: Metric) -> Laws | None:
    """None for a study without rungs."""
    parts = rungs(results)
    if len(parts) < 2:
        return None
    each = [(one.variants[0]["rung"], arms(one, measured)) for one in parts]
    labels = [arm.label for arm in each[0][1]]
    steps = {
        label: [_step(rung, arm) for rung, found in each for arm in found if arm.label == label]
        for label in labels
    }
    base, multiples = steps[labels[0]], sorted({step.multiple for step in steps[labels[0]]})
    ahead = results.study["design"]["ahead"]
    parameters = ahead * max(step.parameters for step in base)
    at = (parameters, parameters * multiples[-1])
    climbs: list[Climb] = []
    for i, label in enumerate(labels):
        name = next(v["name"] for v in results.variants if v["label"] == label)
        climbs.append(
            _climb(name, label, steps[label], at, base, i, climbs[0].law if climbs else None)
        )
    highest = max(base, key=lambda step: step.flops)
    epochs = max(v["cost"].get("epochs", 0.0) for v in results.variants)
    return Laws(climbs, *at, highest.flops, ahead, multiples, highest.rung, epochs)


def _step(rung, arm: Arm) -> Step:
    cost, values = arm.cost, tuple(arm.runs.values[seed] for seed in sorted(arm.runs.values))
    params, tokens, flops = (float(cost[name] or 0) for name in ("params", "tokens", "flops"))
    return Step(
        rung["said"],
        rung["multiple"],
        params,
        tokens,
        flops,
        arm.best.interval,
        values,
        arm.runs.total,
    )


def _climb(
    name: str,
    label: str,
    steps: list[Step],
    at: tuple[float, float],
    base: list[Step],
    seed: int,
    first: Law | None,
) -> Climb:
    points = [Point(step.parameters, step.tokens, value) for step in steps for value in step.values]
    try:
        # From seeds of their own, so that the difference of two laws is one of independent draws.
        law = fit(points, axis(step.multiple for step in steps), resamples=RESAMPLES, seed=seed)
    except ValueError as error:
        return Climb(name, label, steps, None, str(error), None, None, None)
    per = [step.flops / (step.parameters * step.tokens) for step in steps]
    flops = max(step.flops for step in base)
    best = (
        law.optimal(flops, sorted(per)[len(per) // 2])
        if law.A is not None and law.B is not None
        else None
    )
    return Climb(
        name, label, steps, law, "", law.predict(*at), law.gap(first, *at) if first else None, best
    )


def answered(found: Laws, measured: Metric) -> str:
    """What the laws say beyond the ladder."""
    known = [climb for climb in found.climbs if climb.predicts]
    if not known:
        return "The runs show no law yet."
    each = ", ".join(f"{climb.name} {prediction(climb.there, measured)}" for climb in known)
    return (
        f"Extrapolated to {found.ahead:g} times the largest size, the laws predict {measured.name}:"
        f" {each}."
    )


def sentences(found: Laws, measured: Metric) -> list[str]:
    """On each variant: its law, and what it predicts."""
    return [_sentence(climb, found, measured) for climb in found.climbs]


def _sentence(climb: Climb, found: Laws, measured: Metric) -> str:
    law = climb.law
    if law is None:
        return f"{climb.name} has no law yet. {climb.why}"
    text = f"{climb.name} follows {equation(law)} ({exponents(law)}; {law.points} runs)."
    if law.at_bounds:
        which = " and ".join(law.at_bounds)
        return (
            f"{text} The runs do not tell {which}, so the law predicts nothing: take more seeds, or"
            " sizes further apart."
        )
    where = (
        f"{found.ahead:g} times the largest size, {compact(found.parameters)} parameters and"
        f" {compact(found.tokens)} tokens"
    )
    text += f" At {where}, the law predicts {prediction(climb.there, measured)}: an extrapolation."
    return f"{text} {_apart(climb, found, measured)}".rstrip()


def _apart(climb: Climb, found: Laws, measured: Metric) -> str:
    base = found.climbs[0]
    if climb.gap is None or base.law is None or base.law.at_bounds:
        return ""
    gap = climb.gap
    digits = decimals((gap.high - gap.low) / 2 * measured.scale)
    way = "above" if gap.loss > 0 else "below"
    low, high = (gap.low, gap.high) if gap.loss > 0 else (-gap.high, -gap.low)
    size = (
        f"{measured.said(abs(gap.loss), digits)} {way} the law of {base.name}"
        f" ({_span(low, high, digits, measured)})"
    )
    return f"That is {size}{'' if gap.low * gap.high > 0 else ', which may be none'}."


def equation(law: Law) -> str:
    """L(N, D) = 1.69 + 406 N^-0.34 + 411 D^-0.28"""
    letters = {"parameters": ("N", law.A, law.alpha), "tokens": ("D", law.B, law.beta)}
    axes = [letters[name] for name in AXES if letters[name][1] is not None]
    terms = "".join(
        f" + {factor:.3g} {letter}^-{exponent:.2f}" for letter, factor, exponent in axes
    )
    floor = law.E if law.E >= 0.005 else 0  # of two digits behind the point, as its interval
    return f"L({', '.join(letter for letter, *_ in axes)}) = {floor:.3g}{terms}"


def exponents(law: Law) -> str:
    each = {name: getattr(law, name) for name in ("E", "alpha", "beta") if name in law.intervals}
    return ", ".join(
        f"{name} {value:.2f} [{law.intervals[name][0]:.2f}, {law.intervals[name][1]:.2f}]"
        for name, value in each.items()
    )


def prediction(found: Prediction, measured: Metric) -> str:
    digits = decimals((found.high - found.low) / 2 * measured.scale)
    return f"{measured.said(found.loss, digits)} ({_span(found.low, found.high, digits, measured)})"


def _span(low: float, high: float, digits: int, measured: Metric) -> str:
    return (
        f"95 % interval {measured.said(low, digits, unit=False)} to"
        f" {measured.said(high, digits, unit=False)}"
    )


def notes(found: Laws) -> list[str]:
    """What the laws are of, and what they rest on."""
    one = len(found.multiples) == 1
    text = [
        "Each law is fitted to all runs of a variant that finished, whatever their seed"
        + (f": L(N) along D = {found.multiples[0]:g} N." if one else ", in N and D at once.")
        + " N: parameters, embeddings among them; D: tokens that were read, padding included."
        " Intervals at 95 % are those of the residual bootstrap; they hold as far as the law"
        " does, and beyond the largest size nobody has looked (in simulations of true laws, 89 to"
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
