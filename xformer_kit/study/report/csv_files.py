"""runs.csv, variants.csv and laws.csv: all values with all their digits, for other programs."""

import csv
import io
from typing import Any

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.laws import Laws, VariantLaw
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Difference
from xformer_kit.study.variants import MEASURED, PLANNED, VariantResult, metric_names
from xformer_kit.text.printable import cell

MEASURES = (*MEASURED, "flops_per_token")

Row = dict[str, Any]


def runs(results: Results) -> str:
    """One row per run. Factors are columns level.<factor>; unknown values are empty."""
    return csv_text(run_rows(results))


def variants(content: Content) -> str:
    """One row per variant at its best point of tuning, the baseline first."""
    return csv_text(variant_rows(content))


def laws(found: Laws) -> str:
    """One row per variant of a ladder: the coefficients of its law with their intervals, and its
    extrapolation.
    """
    return csv_text([_law_row(one, found) for one in found.variants])


def run_rows(results: Results) -> list[Row]:
    """One row per run, column -> value: the variant and its levels, the seed and the end of the
    run, its metrics, the planned and the measured costs, and where it is.
    """
    metrics = metric_names(results)
    others = (*metrics, *PLANNED, *MEASURES)
    metrics += [name for name in results.study.get("also") or () if name not in others]
    return [_run_row(one, results.variants[one.variant], metrics) for one in results.outcomes]


def _run_row(run: Outcome, variant: Any, metrics: list[str]) -> Row:
    rung, planned = variant.get("rung"), variant.get("cost") or {}
    return {
        "variant": variant["name"],
        "label": variant["label"],
        **_level_columns(variant["levels"]),
        **({"rung": rung["name"], "multiple": rung["multiple"]} if rung else {}),
        "tuned": " ".join(variant["tuned"]),
        "seed": run.seed,
        "status": run.status,
        "step": run.step,
        "why": run.why or run.facts.get("stopped"),
        **{name: run.facts.get(name) for name in metrics},
        **{name: planned.get(name) for name in PLANNED},
        **{name: run.facts.get(name) for name in MEASURES},
        "key": run.key,
        "directory": run.directory,
    }


def variant_rows(content: Content) -> list[Row]:
    """Column -> value of each variant."""
    each = zip(content.variants, content.sentences, strict=True)
    rows = [_variant_row(variant, sentence) for variant, sentence in each]
    for one in content.secondary:
        name = f"also.{one.metric.name}"
        for row, mean, difference in zip(rows, one.means, one.differences, strict=True):
            row |= {f"{name}.{key}": getattr(mean, key) for key in ("mean", "low", "high", "sd")}
            row |= _interval_columns(f"{name}.difference", difference)
    return rows


def _level_columns(levels: Any) -> Row:
    """The column of each factor's level."""
    return {f"level.{factor}": level for factor, level in levels.items()}


def _interval_columns(name: str, found: Any, value: str = "mean") -> Row:
    """Columns of a value and of its interval; None if unknown."""
    attributes = {name: value, f"{name}_low": "low", f"{name}_high": "high"}
    return {key: getattr(found, attribute, None) for key, attribute in attributes.items()}


def _variant_row(variant: VariantResult, sentence: str) -> Row:
    found, verdict, runs = variant.best.interval, variant.verdict, variant.runs
    d: Difference | None = verdict.difference if verdict else None
    return {
        "variant": variant.name,
        "label": variant.label,
        **_level_columns(variant.levels),
        "overrides": variant.overrides,
        "tuned": " ".join(variant.best.tuned),
        "off_budget": variant.off,
        "runs": runs.total,
        "finished": len(runs.values),
        "diverged": len(runs.diverged),
        "failed": len(runs.failed),
        "unfinished": len(runs.unfinished),
        "left_out": len(runs.left_out),
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "sd": found.sd,
        "outcome": verdict.outcome if verdict else "baseline",
        **_interval_columns("difference", d),
        "effect_size": d and d.effect,
        "p": None if runs.stopped else d and d.p,  # a stopped variant is not tested
        "p_holm": verdict and verdict.p,
        "p_margin_holm": verdict and verdict.p_margin,
        "seeds_in_common": d and d.count,
        "method": d and d.method,
        **variant.cost,
        "sentence": sentence,
    }


def _law_row(one: VariantLaw, found: Laws) -> Row:
    law, best = one.law, one.optimum
    numbers: Row = {}
    for name in ("E", "A", "alpha", "B", "beta"):
        low, high = law.intervals.get(name, (None, None)) if law else (None, None)
        numbers |= {name: law and getattr(law, name), f"{name}_low": low, f"{name}_high": high}
    return {
        "variant": one.name,
        "label": one.label,
        "runs": one.finished,
        **numbers,
        "residual": law and law.residual,
        "at_bounds": " ".join(law.at_bounds) if law else "",
        "extrapolated_parameters": found.parameters,
        "extrapolated_tokens": found.tokens,
        **_interval_columns("predicted", one.prediction),
        **_interval_columns("difference", one.difference),
        "best_at_flops": best and found.flops,
        **_interval_columns("best_parameters", best, "parameters"),
        "best_tokens": best and best.tokens,
        "best_loss": best and best.loss,
        "why": one.why,
    }


def columns_of(rows: list[Row]) -> list[str]:
    """The columns of all rows, in the order in which they first occur."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_text(rows: list[Row]) -> str:
    """The rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), lineterminator="\n")
    writer.writerow({name: cell(name) for name in writer.fieldnames})
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()
