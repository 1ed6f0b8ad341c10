"""Tables of a ladder: fitted laws, predictions, compute-optimal sizes, and all rungs."""

from xformer_kit.study.metric import decimals, plain, significant_digits
from xformer_kit.study.numbers import NONE, compact
from xformer_kit.study.report.document import Table
from xformer_kit.study.report.laws import LadderStep, Laws, VariantLaw, equation


def tables(found: Laws) -> list[Table]:
    return [_law_table(found), _prediction_table(found), _optimum_table(found)]


def _law_table(found: Laws) -> Table:
    axes = [
        name
        for name in ("E", "alpha", "beta")
        if name != "beta" or any(one.law and one.law.beta is not None for one in found.variants)
    ]
    return Table(
        "Laws",
        ["variant", "law", *axes, "runs", "error"],
        [
            [
                one.name,
                equation(one.law) if one.law else one.why,
                *(_coefficient(one, name) for name in axes),
                f"{one.finished} of {sum(step.runs for step in one.steps)}",
                f"{100 * one.law.residual:.2g} %" if one.law else NONE,
            ]
            for one in found.variants
        ],
        f"E: irreducible {found.metric.title}. alpha: exponent of parameters N, beta: exponent of"
        " tokens D. In parentheses: 95 % CI. Error: root mean square relative error of a run.",
        text=(1,),
    )


def _coefficient(one: VariantLaw, name: str) -> str:
    """The cell of a coefficient with its interval."""
    if one.law is None or name not in one.law.intervals:
        return NONE
    low, high = one.law.intervals[name]
    at = " at its bound" if name in one.law.at_bounds else ""
    digits = decimals((high - low) / 2)
    value, low_text, high_text = (plain(x, digits) for x in (getattr(one.law, name), low, high))
    return f"{value} ({low_text} to {high_text}){at}"


def _prediction_table(found: Laws) -> Table:
    metric, comparable = found.metric, found.variants[0].determined
    return Table(
        f"Extrapolation to {compact(found.parameters)} parameters and {compact(found.tokens)}"
        " tokens",
        ["variant", "predicted", "95 % CI", "difference", "its 95 % CI"],
        [
            [
                one.name,
                *metric.estimate(one.prediction),
                *metric.estimate(one.difference if comparable else None, signed=True),
            ]
            for one in found.variants
            if one.determined
        ],
        f"{metric.title} at {found.ahead:g} times the largest size, where no run was made."
        " Difference: from the baseline.",
    )


def _optimum_table(found: Laws) -> Table:
    """Compute-optimal sizes at the FLOPs of the top rung."""
    return Table(
        "Compute-optimal size",
        ["variant", "parameters", "95 % CI", "tokens", "tokens per parameter", "predicted"],
        [
            [
                one.name,
                compact(best.parameters, digits),
                f"{compact(best.low, digits)} to {compact(best.high, digits)}",
                compact(best.tokens, digits),
                compact(best.tokens / best.parameters, digits),
                found.metric.format(best.loss, found.metric.digits(one.prediction), unit=False),
            ]
            for one in found.variants
            if (best := one.optimum) and one.determined
            for digits in [significant_digits(best.parameters, best.low, best.high)]
        ],
        f"Size and tokens with the lowest {found.metric.name} of the law at"
        f" {compact(found.flops)} training FLOPs, those of the baseline's top rung (Hoffmann et"
        " al., 2022, arXiv:2203.15556, equation 4, with counted FLOPs per parameter and token).",
    )


def rungs(found: Laws) -> Table:
    return Table(
        "All rungs",
        [
            "variant",
            "rung",
            "parameters",
            "tokens",
            "training FLOPs",
            "mean",
            "95 % CI",
            "law",
            "finished",
        ],
        [_rung_row(one, step, found) for one in found.variants for step in one.steps],
        f"{found.metric.title}. x10: ten tokens per parameter. Law: value of the fitted law.",
        text=(1,),
    )


def _rung_row(one: VariantLaw, step: LadderStep, found: Laws) -> list[str]:
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
