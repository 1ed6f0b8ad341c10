"""Reads the directory of a study and its runs into `Results`."""

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tasks.study import state
from tasks.study.saved_plan import FORECAST, fault, read_plan
from xformer_kit.files.saved_files import read_columns, read_object
from xformer_kit.registry import ConfigError
from xformer_kit.study.forecast import FILE
from xformer_kit.study.nodes import Node
from xformer_kit.study.results import Outcome, Results

RESTORE = "Restore it, or set study.forecast=false: a forecast cannot be made after its runs."
Curves = dict[str, tuple[list[int], list[float]]]  # metric -> (steps, values)


def results(folder: Path) -> Results:
    """Returns the results of a study so far. Raises ConfigError if the directory is no study."""
    plan = read_plan(folder)
    pool, pruned = (folder / plan["pool"]).resolve(), plan.get("search") is not None
    outcomes = []
    for run in plan["runs"]:
        directory = pool / run["key"]
        current, curves = state_and_curves(state.of(directory, pruned), directory)
        outcomes.append(outcome(run, current, str(directory), curves))
    found = results_of(plan, outcomes, str(folder))
    if not plan["study"].get("forecast"):
        return found
    with suppress(FileNotFoundError):
        written = read_object(folder / FILE, {}, fix=RESTORE)
        if damage := fault(written, FORECAST, ""):
            raise ConfigError(damage.under(folder / FILE).with_fix(RESTORE))
        return replace(found, forecast=written)
    return found


def results_of(plan: Node, outcomes: list[Outcome], folder: str = "") -> Results:
    """Returns the results of a plan (the content of plan.json) with these outcomes."""
    return Results(
        plan["study"],
        plan["command"],
        plan["components"],
        plan["variants"],
        outcomes,
        plan.get("search"),
        folder=folder,
    )


def outcome(
    run: Node, current: state.State, directory: str = "", curves: Curves | None = None
) -> Outcome:
    """Returns the outcome of an entry of the plan's runs, from its state."""
    return Outcome(
        run["variant"],
        run["seed"],
        run["key"],
        current.status,
        directory,
        current.step,
        current.why,
        current.facts,
        curves or {},
    )


def state_and_curves(current: state.State, directory: Path) -> tuple[state.State, Curves]:
    """Returns a run's state and its curves; the state is failed if the curves cannot be read."""
    try:
        return current, read_curves(directory / "metrics.csv")
    except ConfigError as error:
        return state.State("failed", why=str(error)), {}


def read_curves(path: Path) -> Curves:
    """Returns the finite values of a run's metrics.csv; empty if there is no file. Raises
    ConfigError for a damaged file.
    """
    try:
        columns = read_columns(path)
    except FileNotFoundError:
        return {}
    curves = {}
    for name, (steps, values) in columns.items():
        finite = [at for at, value in enumerate(values) if math.isfinite(value)]
        curves[name] = [steps[at] for at in finite], [values[at] for at in finite]
    return curves
