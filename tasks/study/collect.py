"""A study's directory and the pool, read into results."""

import math
from pathlib import Path
from typing import Any

from tasks.study import state
from tasks.study.saved_plan import read_plan
from xformer_kit.registry import ConfigError
from xformer_kit.registry.saved_files import read_columns
from xformer_kit.study.results import Outcome, Results


def results(folder: Path) -> Results:
    """What came of a study so far. Raises ConfigError where the directory holds none."""
    plan = read_plan(folder)
    pool = (folder / plan["pool"]).resolve()
    search = plan.get("search")
    outcomes = [outcome(run, pool / run["key"], search is not None) for run in plan["runs"]]
    return Results(
        str(folder),
        plan["study"],
        plan["command"],
        plan["parts"],
        plan["variants"],
        outcomes,
        search,
    )


def outcome(run: dict[str, Any], directory: Path, pruned: bool = False) -> Outcome:
    """What came of a run. One with a damaged metrics.csv counts as failed, and its figures for
    nothing.
    """
    now, curves = counted(state.of(directory, pruned), directory)
    step = now.step if now.status != "finished" else now.facts["steps"]
    return Outcome(
        run["variant"],
        run["seed"],
        run["key"],
        now.status,
        str(directory),
        step,
        now.why,
        now.facts,
        curves,
    )


def counted(
    now: state.State, directory: Path
) -> tuple[state.State, dict[str, tuple[list[int], list[float]]]]:
    """As what a run counts in its study, and its curves: as failed if they cannot be read."""
    try:
        return now, read_curves(directory / "metrics.csv")
    except ConfigError as error:
        return state.State("failed", why=str(error)), {}


def read_curves(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Metric -> (steps, values) of a run's metrics.csv, without what is not finite. Raises
    ConfigError for a damaged file.
    """
    try:
        found = read_columns(path)
    except FileNotFoundError:
        return {}
    return {name: _finite(*columns) for name, columns in found.items()}


def _finite(steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    kept = [
        (step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)
    ]
    return [step for step, _ in kept], [value for _, value in kept]
