"""The tables of a ladder: laws, what they predict, and the figure of every rung."""

from xformer_kit.study.figures import Metric, decimals
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.laws import Climb, Laws, Step, equation
from xformer_kit.study.report.said import compact
from xformer_kit.study.report.tables import NONE, Table, unit
from xformer_kit.study.scaling import Law, Prediction


def tables(content: Content) -> list[Table]:
    found = content.laws
    if found is None:
        return []
    return [_laws(found, content.metric), *_predictions(found, content), *_splits(found, content)]


def _laws(found: Laws, measured: Metric) -> Table:
    rows = []
    for climb in found.climbs:
        law = climb.law
        runs = (
            f"{sum(len(step.values) for step in climb.steps)} of"
            f" {sum(step.runs for step in climb.steps)}"
        )
        if law is None:
            rows.append([climb.name, climb.why, NONE, NONE, NONE, runs, NONE])
            continue
        rows.append(
            [
                climb.name,
                equation(law),
                *(_number(law, name) for name in ("E", "alpha", "beta")),
                runs,
                f"{100 * law.residual:.2g} %",
            ]
        )
    if all(row[4] == NONE for row in rows):  # a law of one axis
        rows = [[*row[:4], *row[5:]] for row in rows]
        header = ["variant", "law", "E", "alpha", "runs", "error"]
    else:
        header = ["variant", "law", "E", "alpha", "beta", "runs", "error"]
    note = (
        f"E, the floor, in {unit(measured)}; alpha, the exponent of parameters N, and beta, of"
        " tokens D, with their 95 % intervals. Error: of one run, root mean square, as a share of"
        " its loss."
    )
    return Table("Laws", header, rows, frozenset(range(2, len(header))), note)


def _number(law: Law, name: str) -> str:
    value = getattr(law, name)
    if value is None:
        return NONE
    low, high = law.intervals[name]
    return (
        f"{value:.2f} ({low:.2f} to {high:.2f}){' at its bound' if name in law.at_bounds else ''}"
    )


def _predictions(found: Laws, content: Content) -> list[Table]:
    if not (known := [climb for climb in found.climbs if climb.predicts]):
        return []
    apart = found.climbs[0].predicts  # laws of which the baseline's is known
    rows = [
        [
            climb.name,
            *_predicted(climb.there, content.metric),
            *_predicted(climb.gap if apart else None, content.metric, True),
        ]
        for climb in known
    ]
    title = (
        f"Extrapolated to {compact(found.parameters)} parameters and {compact(found.tokens)} tokens"
    )
    header = ["variant", "predicted", "95 % interval", "minus the baseline's", "95 % interval"]
    note = (
        f"{unit(content.metric)} at {found.ahead:g} times the largest size, where nothing was run."
    )
    return [Table(title, header, rows, frozenset({1, 2, 3, 4}), note)]


def _predicted(found: Prediction | None, measured: Metric, signed: bool = False) -> list[str]:
    if found is None:
        return [NONE, NONE]
    digits = decimals((found.high - found.low) / 2 * measured.scale)
    said = [measured.said(value, digits, unit=False) for value in found]
    mean, low, high = (f"+{text}" if signed and float(text) > 0 else text for text in said)
    return [mean, f"{low} to {high}"]


def _splits(found: Laws, content: Content) -> list[Table]:
    """How as much compute as the top rung takes is spent best."""
    if not (known := [climb for climb in found.climbs if climb.best and not climb.law.at_bounds]):
        return []
    rows = [_split(climb, content.metric) for climb in known]
    header = [
        "variant",
        "parameters",
        "95 % interval",
        "tokens",
        "tokens per parameter",
        "predicted",
    ]
    note = (
        f"The lowest {content.metric.name} of the law under {compact(found.flops)} training FLOPs,"
        " those of the baseline's top rung (Hoffmann et al., 2022, arXiv:2203.15556, equation 4,"
        " with the FLOPs of a parameter and token as counted)."
    )
    return [Table("Compute at its best", header, rows, frozenset(range(1, 6)), note)]


def _split(climb: Climb, measured: Metric) -> list[str]:
    best = climb.best
    span = f"{compact(best.low)} to {compact(best.high)}"
    each = f"{best.tokens / best.parameters:.3g}"
    return [
        climb.name,
        compact(best.parameters),
        span,
        compact(best.tokens),
        each,
        measured.said(best.loss, 4, unit=False),
    ]


def rungs(content: Content) -> Table:
    rows = [
        _rung(climb, step, content.metric) for climb in content.laws.climbs for step in climb.steps
    ]
    header = [
        "variant",
        "rung",
        "parameters",
        "tokens",
        "training FLOPs",
        "mean",
        "95 % interval",
        "law",
        "finished",
    ]
    note = (
        f"{unit(content.metric)}. x10: ten tokens for each parameter. Law: what the fitted law has"
        " there."
    )
    return Table("Every rung", header, rows, frozenset(range(2, 9)), note)


def _rung(climb: Climb, step: Step, measured: Metric) -> list[str]:
    found, span, digits = step.interval, NONE, 4
    if found.low is not None:
        digits = decimals((found.high - found.low) / 2 * measured.scale)
        span = (
            f"{measured.said(found.low, digits, unit=False)} to"
            f" {measured.said(found.high, digits, unit=False)}"
        )
    mean = NONE if found.mean is None else measured.said(found.mean, digits, unit=False)
    law = (
        NONE
        if climb.law is None
        else measured.said(climb.law.loss(step.parameters, step.tokens), digits, unit=False)
    )
    sizes = (compact(step.parameters), compact(step.tokens), compact(step.flops))
    return [climb.name, step.rung, *sizes, mean, span, law, f"{found.count} of {step.runs}"]
