"""runs.csv and variants.csv: every figure with all its digits, for other programs."""

import csv
import io
from typing import Any

from xformer_kit.registry.printable import cell
from xformer_kit.study.report.arms import MEASURED, PLANNED, Arm, metrics
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.laws import Climb, Laws
from xformer_kit.study.results import Results

MEASURES = (*MEASURED, "flops_per_token")


def runs(results: Results) -> str:
    """A row for each run. Factors are columns level.<factor>; what is not known is empty."""
    return _text(run_rows(results))


def variants(content: Content) -> str:
    """A row for each variant at the point where it is compared, the baseline first."""
    return _text(variant_rows(content))


def run_rows(results: Results) -> list[dict[str, Any]]:
    """Column -> value of each run."""
    names, rows = metrics(results), []
    names += [
        name
        for name in results.study.get("also") or ()
        if name not in (*names, *PLANNED, *MEASURES)
    ]
    for one in results.outcomes:
        variant = results.variants[one.variant]
        planned = variant.get("cost") or {}
        rows.append(
            {
                "variant": variant["name"],
                "label": variant["label"],
                **{f"level.{factor}": level for factor, level in variant["levels"].items()},
                **(
                    {"rung": rung["said"], "multiple": rung["multiple"]}
                    if (rung := variant.get("rung"))
                    else {}
                ),
                "tuned": " ".join(variant["tuned"]),
                "seed": one.seed,
                "status": one.status,
                "step": one.step,
                "why": one.why or one.facts.get("stopped"),
                **{name: one.facts.get(name) for name in names},
                **{name: planned.get(name) for name in PLANNED},
                **{name: one.facts.get(name) for name in MEASURES},
                "key": one.key,
                "directory": one.directory,
            }
        )
    return rows


def variant_rows(content: Content) -> list[dict[str, Any]]:
    """Column -> value of each variant."""
    arms = zip(content.arms, content.sentences, strict=True)
    return [_variant(arm, said) | _also(content, i) for i, (arm, said) in enumerate(arms)]


def _also(content: Content, i: int) -> dict[str, Any]:
    """Further metrics of a variant."""
    found: dict[str, Any] = {}
    for one in content.also:
        mean, d, name = one.means[i], one.differences[i], f"also.{one.metric.name}"
        found |= {f"{name}.{key}": getattr(mean, key) for key in ("mean", "low", "high", "sd")}
        found |= {f"{name}.difference{end}": d and getattr(d, key) for end, key in ENDS.items()}
    return found


ENDS = {"": "mean", "_low": "low", "_high": "high"}


def _variant(arm: Arm, said: str) -> dict[str, Any]:
    found, verdict, runs = arm.best.interval, arm.verdict, arm.runs
    d = verdict.difference if verdict else None
    return {
        "variant": arm.name,
        "label": arm.label,
        **{f"level.{factor}": level for factor, level in arm.levels.items()},
        "overrides": " ".join((*arm.words, *arm.best.tuned, *arm.knob)),
        "tuned": arm.best.said,
        "off_budget": arm.off,
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
        "difference": d and d.mean,
        "difference_low": d and d.low,
        "difference_high": d and d.high,
        "effect_size": d and d.effect,
        "p": None if runs.stopped else d and d.p,  # no test is made of what was stopped
        "p_holm": verdict and verdict.p,
        "p_margin_holm": verdict and verdict.p_margin,
        "seeds_in_common": d and d.count,
        "method": d and d.method,
        **arm.cost,
        "sentence": said,
    }


def laws(found: Laws) -> str:
    """A row for each variant of a ladder: the numbers of its law with their bounds, and what it
    predicts.
    """
    return _text([_law(climb, found) for climb in found.climbs])


def _law(climb: Climb, found: Laws) -> dict[str, Any]:
    law, there, gap, best = climb.law, climb.there, climb.gap, climb.best
    numbers: dict[str, Any] = {}
    for name in ("E", "A", "alpha", "B", "beta"):
        low, high = law.intervals.get(name, (None, None)) if law else (None, None)
        numbers |= {name: law and getattr(law, name), f"{name}_low": low, f"{name}_high": high}
    return {
        "variant": climb.name,
        "label": climb.label,
        "runs": sum(len(step.values) for step in climb.steps),
        **numbers,
        "residual": law and law.residual,
        "at_bounds": " ".join(law.at_bounds) if law else "",
        "extrapolated_parameters": found.parameters,
        "extrapolated_tokens": found.tokens,
        "predicted": there and there.loss,
        "predicted_low": there and there.low,
        "predicted_high": there and there.high,
        "difference": gap and gap.loss,
        "difference_low": gap and gap.low,
        "difference_high": gap and gap.high,
        "best_at_flops": best and found.flops,
        "best_parameters": best and best.parameters,
        "best_parameters_low": best and best.low,
        "best_parameters_high": best and best.high,
        "best_tokens": best and best.tokens,
        "best_loss": best and best.loss,
        "why": climb.why,
    }


def columns_of(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _text(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), lineterminator="\n")
    writer.writerow({name: cell(name) for name in writer.fieldnames})
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()
