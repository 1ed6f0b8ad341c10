"""The tables of a ladder: laws, what they predict, and the values of every rung."""

from xformer_kit.study.report.document import NONE, Table
from xformer_kit.study.report.laws import LadderStep, Laws, VariantLaw, equation
from xformer_kit.study.report.numbers import compact


def tables(found: Laws) -> list[Table]:
    return [_laws(found), _predictions(found), _splits(found)]


def _laws(found: Laws) -> Table:
    axes = [
        name
        for name in ("E", "alpha", "beta")
        if name != "beta" or any(one.law and one.law.beta is not None for one in found.each)
    ]
    rows = [
        [
            one.name,
            equation(one.law) if one.law else one.why,
            *(_number(one, name) for name in axes),
            f"{one.finished} of {sum(step.runs for step in one.steps)}",
            f"{100 * one.law.residual:.2g} %" if one.law else NONE,
        ]
        for one in found.each
    ]
    return Table(
        "Laws",
        ["variant", "law", *axes, "runs", "error"],
        rows,
        f"E, the floor, in {found.metric.title}; alpha, the exponent of parameters N, and beta, of"
        " tokens D, with their 95 % intervals. Error: of one run, root mean square, as a share of"
        " its loss.",
        text=(1,),
    )


def _number(one: VariantLaw, name: str) -> str:
    if one.law is None or name not in one.law.intervals:
        return NONE
    low, high = one.law.intervals[name]
    at = " at its bound" if name in one.law.at_bounds else ""
    return f"{getattr(one.law, name):.2f} ({low:.2f} to {high:.2f}){at}"


def _predictions(found: Laws) -> Table:
    metric, compared = found.metric, found.each[0].predicts
    return Table(
        f"Extrapolated to {compact(found.parameters)} parameters and {compact(found.tokens)}"
        " tokens",
        ["variant", "predicted", "95 % interval", "minus the baseline's", "95 % interval"],
        [
            [
                one.name,
                *metric.estimate(one.there),
                *metric.estimate(one.gap if compared else None, signed=True),
            ]
            for one in found.each
            if one.predicts
        ],
        f"{metric.title} at {found.ahead:g} times the largest size, where nothing was run.",
    )


def _splits(found: Laws) -> Table:
    """How as much compute as the top rung takes is spent best."""
    rows = [
        [
            one.name,
            compact(best.parameters),
            f"{compact(best.low)} to {compact(best.high)}",
            compact(best.tokens),
            f"{best.tokens / best.parameters:.3g}",
            found.metric.format(best.loss, 4, unit=False),
        ]
        for one in found.each
        if (best := one.best) and one.predicts
    ]
    return Table(
        "Compute at its best",
        ["variant", "parameters", "95 % interval", "tokens", "tokens per parameter", "predicted"],
        rows,
        f"The lowest {found.metric.name} of the law under {compact(found.flops)} training FLOPs,"
        " those of the baseline's top rung (Hoffmann et al., 2022, arXiv:2203.15556, equation 4,"
        " with the FLOPs of a parameter and token as counted).",
    )


def rungs(found: Laws) -> Table:
    return Table(
        "Every rung",
        [
            "variant",
            "rung",
            "parameters",
            "tokens",
            "training FLOPs",
            "mean",
            "95 % interval",
            "law",
            "finished",
        ],
        [_rung(one, step, found) for one in found.each for step in one.steps],
        f"{found.metric.title}. x10: ten tokens for each parameter. Law: what the fitted law has"
        " there.",
        text=(1,),
    )


def _rung(one: VariantLaw, step: LadderStep, found: Laws) -> list[str]:
    metric, mean = found.metric, step.interval
    law = one.law.loss(step.parameters, step.tokens) if one.law else None
    return [
        one.name,
        step.rung,
        *(compact(size) for size in (step.parameters, step.tokens, step.flops)),
        *metric.estimate(mean),
        NONE if law is None else metric.format(law, metric.digits(mean), unit=False),
        f"{mean.count} of {step.runs}",
    ]
