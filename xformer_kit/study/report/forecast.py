"""A forecast in a report: the loss that the laws of the smaller sizes foretold, and the measured
one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xformer_kit.study.forecast import foretold, is_intact, is_of, run_name
from xformer_kit.study.metric import Metric
from xformer_kit.study.numbers import NONE
from xformer_kit.study.report.document import Table
from xformer_kit.study.report.laws import VariantLaw, fit_laws
from xformer_kit.study.report.noise import compared_runs
from xformer_kit.study.results import Results
from xformer_kit.study.statistics import Estimate, Interval
from xformer_kit.study.variants import variant_results

UNDETERMINED = "the runs of the smaller sizes do not determine its law"


@dataclass(frozen=True)
class Foretold:
    """The forecast of one variant on one rung, and its runs."""

    label: str  # of the variant
    name: str  # variant and rung
    forecast: Estimate
    measured: Interval

    @property
    def error(self) -> float | None:
        """Relative error of the forecast; None without a finished run."""
        if self.measured.mean is None or self.forecast.mean is None:
            return None
        return self.forecast.mean / self.measured.mean - 1


@dataclass(frozen=True)
class Forecast:
    """A written forecast, the baseline's first, each with its largest rung last."""

    rows: list[Foretold]
    time: str
    sha256: str
    ahead: float  # FLOPs of the largest run / those of the largest run that was fitted
    why_not: str = ""  # why it is no forecast of these runs; empty if it is


def predictions(results: Results) -> dict[str, dict[str, Any]]:
    """Variant and rung -> the loss that the laws of the other sizes predict, with its interval and
    the FLOPs; or why there is none.
    """
    results = compared_runs(results)
    indices = foretold(results.variants)
    kept = [i for i in range(len(results.variants)) if i not in indices]
    fitted = fit_laws(results.select_variants(kept))
    laws = {one.label: one for one in fitted.variants} if fitted else {}
    return {run_name(results.variants[i]): _prediction(results.variants[i], laws) for i in indices}


def _prediction(variant: Mapping[str, Any], laws: Mapping[str, VariantLaw]) -> dict[str, Any]:
    one, cost = laws[variant["label"]], variant["cost"]
    size = {name: cost[name] for name in ("params", "tokens", "flops")}
    if not one.determined:
        return {**size, "why": one.why or UNDETERMINED}
    return {**size, **one.law.predict(cost["params"], cost["tokens"])._asdict()}


def compared(results: Results, metric: Metric) -> Forecast | None:
    """The written forecast of a study with what was measured; None if there is none."""
    written = results.forecast
    if written is None:
        return None
    results = compared_runs(results)
    if not is_intact(written):
        return Forecast([], "", "", 0.0, "was changed after it was written: its hash is another")
    if not is_of(written, results.variants):
        return Forecast([], "", "", 0.0, "is of a ladder with another largest size")
    indices, rows = foretold(results.variants), list[Foretold]()
    for i in indices:
        name = run_name(results.variants[i])
        (own,) = variant_results(results.select_variants([i]), metric)
        found = written["predictions"].get(name, {})
        estimate = Estimate(*(found.get(key) for key in Estimate._fields))
        rows.append(Foretold(own.label, name, estimate, own.best.interval))
    flops = [one["cost"]["flops"] for one in results.variants]
    below = max(x for i, x in enumerate(flops) if i not in indices)
    ahead = max(flops[i] for i in indices) / below
    return Forecast(rows, written["time"], written["sha256"], ahead)


def forecast_sentences(found: Forecast, metric: Metric) -> Iterator[str]:
    """The forecast and its error, in words."""
    if found.why_not:
        yield f"There is no forecast: forecast.json {found.why_not}."
    for row in found.rows:
        if row.forecast.mean is None:
            yield f"{row.name} has no forecast: {UNDETERMINED}."
            continue
        foretold_text, span = metric.estimate(row.forecast, unit=True)
        text = f"Foretold for {row.name}: {foretold_text} (95 % CI {span})"
        if row.error is None:
            yield f"{text}; not measured yet."
            continue
        mean, measured_span = metric.estimate(row.measured, unit=True)
        interval = "" if row.measured.low is None else f" (95 % CI {measured_span})"
        inside = row.forecast.low <= row.measured.mean <= row.forecast.high
        yield (
            f"{text}; measured: {mean}{interval}, an error of {100 * abs(row.error):.2g} %,"
            f" {'inside' if inside else 'outside'} of the interval."
        )


def table(found: Forecast, metric: Metric) -> Table:
    if found.why_not:
        return Table("Forecast", [], [])
    return Table(
        "Forecast",
        ["run", "foretold", "95 % CI", "measured", "its 95 % CI", "error"],
        [
            [
                row.name,
                *metric.estimate(row.forecast),
                *metric.estimate(row.measured),
                NONE if row.error is None else f"{100 * row.error:+.2g} %",
            ]
            for row in found.rows
        ],
        f"{metric.title} at {found.ahead:.3g} times the FLOPs of the largest run that was fitted."
        f" Written at {found.time}, before the first of these runs, with the hash"
        f" {found.sha256[:16]} (sha256). The interval is that of the law, without the noise of one"
        " run.",
    )
