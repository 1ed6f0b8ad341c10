"""A study's directory and the pool, read into results."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks import records
from tasks.study import state
from tasks.study.settle import PLAN
from xformer_kit.registry import ConfigError
from xformer_kit.study.results import Outcome, Results


def results(folder: Path) -> Results:
    """What came of a study so far. Raises ConfigError where the directory holds none."""
    plan = read_plan(folder)
    pool = (folder / plan["pool"]).resolve()
    search = plan.get("search")
    outcomes = [outcome(run, pool / run["key"], search is not None) for run in plan["runs"]]
    return Results(str(folder), plan["study"], plan["command"], plan["parts"], plan["variants"], outcomes, search)


def read_plan(folder: Path) -> dict[str, Any]:
    """plan.json of a study's directory. Raises ConfigError where there is none."""
    try:
        return json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(
            f"{folder}: is no study; it has no {PLAN}. Name a study's directory such as outputs/studies/norm_placement."
        ) from None
    except ValueError:
        raise ConfigError(
            f"{folder / PLAN}: cannot be read as JSON. Start the study again; its runs are kept."
        ) from None


def outcome(run: dict[str, Any], directory: Path, pruned: bool = False) -> Outcome:
    now = state.of(directory, pruned)
    curves = read_curves(directory / "metrics.csv")
    step = now.step if now.status != "finished" else now.facts["steps"]
    return Outcome(
        run["variant"], run["seed"], run["key"], now.status, str(directory), step, now.why, now.facts, curves
    )


def read_curves(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Metric -> (steps, values) of a run's metrics.csv, without what is not finite."""
    try:
        columns, rows = records.table(path)
    except OSError:
        return {}
    if not rows:
        return {name: ([], []) for name in columns if name != "step"}
    each = dict(zip(columns, zip(*rows, strict=True), strict=True))
    steps = list(map(int, each.pop("step")))
    return {name: _finite(steps, column) for name, column in each.items()}


def _finite(steps: list[int], column: Sequence[str]) -> tuple[list[int], list[float]]:
    known = [(step, float(text)) for step, text in zip(steps, column, strict=True) if text]
    kept = [pair for pair in known if math.isfinite(pair[1])]
    return [step for step, _ in kept], [value for _, value in kept]
