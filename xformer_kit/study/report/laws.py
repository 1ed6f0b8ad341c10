"""The scaling laws of a ladder: one per variant, its extrapolation, and the differences of the
laws.

The laws are fitted to all rungs. The rest of a report compares variants at the top rung.
"""

from dataclasses import dataclass, replace
from statistics import median_high

from xformer_kit.study.ladder import law_axis
from xformer_kit.study.metric import Metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.numbers import compact
from xformer_kit.study.report.hardly_trained import hardly_trained
from xformer_kit.study.results import Results, rung_name
from xformer_kit.study.scaling import Law, Optimum, Point, fit
from xformer_kit.study.statistics import Estimate, Interval, magnitude
from xformer_kit.study.variants import VariantResult, variant_results

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


@dataclass(frozen=True)
class VariantLaw:
    """A variant on all rungs. `law` is None if its runs identify none; `why` is the reason."""

    name: str
    label: str
    steps: list[LadderStep]
    law: Law | None = None
    why: str = ""
    prediction: Estimate | None = None  # extrapolated loss
    # extrapolated loss minus the baseline's; None for the baseline
    difference: Estimate | None = None
    # compute-optimal size at the top rung's FLOPs; None for a law of one axis
    optimum: Optimum | None = None

    @property
    def determined(self) -> bool:
        """Whether the runs determine every coefficient of the law."""
        return self.law is not None and not self.law.at_bounds

    @property
    def flops_per_parameter_token(self) -> float:
        """Training FLOPs per parameter and token, median over the rungs."""
        return median_high(step.flops / (step.parameters * step.tokens) for step in self.steps)

    @property
    def finished(self) -> int:
        return sum(len(step.values) for step in self.steps)


@dataclass(frozen=True)
class Laws:
    """The laws of all variants, the baseline first, and the size to which they are extrapolated."""

    variants: list[VariantLaw]
    metric: Metric
    parameters: float  # of the extrapolation
    tokens: float  # of the extrapolation
    flops: float  # of the baseline's top rung
    ahead: float  # parameters of the extrapolation / largest parameters of the baseline
    multiples: list[float]
    top: str  # the rung with the most FLOPs
    epochs: float  # maximum over runs
    hardly_trained: list[str]  # rungs at which the baseline is


def split_by_rung(results: Results) -> list[Results]:
    """The results of each rung in order; a study without rungs is one."""
    indices: dict[str | None, list[int]] = {}
    for i, variant in enumerate(results.variants):
        indices.setdefault(rung_name(variant), []).append(i)
    return [results.select_variants(kept) for kept in indices.values()]


def top_rung(results: Results) -> Results:
    """The results of the rung with the most FLOPs of the baseline; all results without rungs."""
    found = split_by_rung(results)
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda one: one.variants[0]["cost"]["flops"])


def fit_laws(results: Results) -> Laws | None:
    """The fitted laws of a ladder; None for a study without rungs."""
    every = split_by_rung(results)
    if results.study["design"]["name"] != "ladder":
        return None
    steps: dict[str, list[LadderStep]] = {}
    for rung in every:
        for variant in variant_results(rung, results.metric):
            steps.setdefault(variant.label, []).append(
                _ladder_step(rung.variants[0]["rung"], variant)
            )
    base = next(iter(steps.values()))
    multiples = sorted({step.multiple for step in base})
    ahead = results.study["design"]["ahead"]
    parameters = ahead * max(step.parameters for step in base)
    highest = max(base, key=lambda step: step.flops)
    size = (parameters, parameters * multiples[-1])
    names = {variant["label"]: variant["name"] for variant in results.variants}
    found: list[VariantLaw] = []
    for label, own in steps.items():
        found.append(_with_law(VariantLaw(names[label], label, own), size, highest.flops, found))
    return Laws(
        found,
        results.metric,
        *size,
        highest.flops,
        ahead,
        multiples,
        highest.rung,
        max(variant["cost"].get("epochs", 0.0) for variant in results.variants),
        [rung_name(one.variants[0]) or "" for one in every if _is_hardly_trained(one)],
    )


def _is_hardly_trained(rung: Results) -> bool:
    """Whether the baseline is on this rung."""
    return bool(hardly_trained(rung, variant_results(rung, rung.metric)[:1]))


def _ladder_step(rung: Node, variant: VariantResult) -> LadderStep:
    """One rung of a variant, from its results on this rung."""
    params, tokens, flops = (
        float(variant.cost[name] or 0) for name in ("params", "tokens", "flops")
    )
    runs = variant.runs
    size = (rung["name"], rung["multiple"], params, tokens, flops)
    return LadderStep(
        *size,
        variant.best.interval,
        tuple(runs.values[seed] for seed in sorted(runs.values)),
        runs.total,
    )


def _with_law(
    one: VariantLaw, size: tuple[float, float], flops: float, earlier: list[VariantLaw]
) -> VariantLaw:
    """The variant with its law, and its difference from the first of the earlier laws."""
    points = [
        Point(step.parameters, step.tokens, value) for step in one.steps for value in step.values
    ]
    try:
        # Each law has its own seed, because `Law.difference` needs independent resamples.
        law = fit(
            points,
            law_axis(step.multiple for step in one.steps),
            resamples=RESAMPLES,
            seed=len(earlier),
        )
    except ValueError as error:
        return replace(one, why=str(error))
    base = earlier[0].law if earlier else None
    return replace(
        one,
        law=law,
        prediction=law.predict(*size),
        difference=law.difference(base, *size) if base else None,
        optimum=law.optimal(flops, one.flops_per_parameter_token),
    )


def prediction_sentence(found: Laws, reference: str) -> str:
    """The extrapolated losses of all variants. reference: name of the baseline."""
    names = [reference, *(one.name for one in found.variants[1:])]
    each = [
        f"{name} {_prediction_text(one.prediction, found.metric)}"
        for name, one in zip(names, found.variants, strict=True)
        if one.determined
    ]
    if not each:
        return "The runs do not determine a scaling law yet."
    return (
        f"Extrapolated to {found.ahead:g} times the largest size, the scaling laws predict"
        f" {found.metric.name}: {', '.join(each)}."
    )


def law_sentence(one: VariantLaw, found: Laws) -> str:
    """The law of a variant, and the extrapolated loss."""
    law = one.law
    if law is None:
        return f"{one.name} has no scaling law yet. {one.why}"
    exponents = ", ".join(
        f"{name} {getattr(law, name):.2f} [{low:.2f}, {high:.2f}]"
        for name, (low, high) in law.intervals.items()
        if name in ("E", "alpha", "beta")
    )
    text = f"{one.name} follows {equation(law)} ({exponents}; {law.points} runs)."
    if law.at_bounds:
        which = " and ".join(law.at_bounds)
        return (
            f"{text} The runs do not determine {which}, so the law is not extrapolated: take more"
            " seeds, or a wider range of sizes."
        )
    size = (
        f"{found.ahead:g} times the largest size, {compact(found.parameters)} parameters and"
        f" {compact(found.tokens)} tokens"
    )
    loss = _prediction_text(one.prediction, found.metric)
    text += f" Extrapolated to {size}: {loss}."
    return f"{text} {_difference_sentence(one, found)}".rstrip()


def _difference_sentence(one: VariantLaw, found: Laws) -> str:
    """The sentence on the extrapolated difference from the baseline; empty without one."""
    base, d = found.variants[0], one.difference
    if d is None or not base.determined:
        return ""
    side = "above" if d.mean > 0 else "below"
    size, span = found.metric.estimate(magnitude(d), unit=True)
    significance = ", not significant" * (d.low * d.high <= 0)
    return f"That is {size} {side} the law of {base.name} (95 % CI {span}){significance}."


def equation(law: Law) -> str:
    """L(N, D) = 1.69 + 406 N^-0.34 + 411 D^-0.28"""
    known = {"N": (law.A, law.alpha), "D": (law.B, law.beta)}
    axes = {letter: numbers for letter, numbers in known.items() if numbers[0] is not None}
    floor = law.E if law.E >= 0.005 else 0  # two decimals, as its interval
    terms = (f" + {factor:.3g} {letter}^-{power:.2f}" for letter, (factor, power) in axes.items())
    return f"L({', '.join(axes)}) = {floor:.3g}{''.join(terms)}"


def _prediction_text(found: Estimate, metric: Metric) -> str:
    """An extrapolated loss with its interval."""
    loss, span = metric.estimate(found, unit=True)
    return f"{loss} (95 % CI {span})"


def notes(found: Laws) -> list[str]:
    """Notes on how the laws are fitted."""
    one = len(found.multiples) == 1
    text = [
        "Each law is fitted to all finished runs of a variant, of all seeds"
        + (f": L(N) along D = {found.multiples[0]:g} N." if one else ", in N and D at once.")
        + " N: parameters including embeddings; D: training tokens including padding. 95 % CIs"
        " are from the residual bootstrap. They assume that the law holds beyond the largest size"
        " that was run (in simulations of true laws, 89 to 93 % of them contain the true loss at 10"
        " times that size), and are not corrected for the number of variants."
    ]
    if found.hardly_trained:
        text.append(
            f"Hardly trained: at {', '.join(found.hardly_trained)} the baseline's loss is within"
            " 5 % of that of a model that has only the frequencies of tokens, or above it. Such"
            " levels bias a law: leave them out, or give them more tokens."
        )
    if found.epochs > 1:
        text.append(
            f"The longest run has {found.epochs:.1f} epochs. Repeated tokens lower the loss less"
            " than new ones (Muennighoff et al., 2023, arXiv:2305.16264), so a law of unrepeated"
            " tokens falls faster."
        )
    return text
