"""A study's directory and the pool, read into results."""

import math
from pathlib import Path

from tasks.study import state
from tasks.study.saved_plan import read_plan
from xformer_kit.registry import ConfigError
from xformer_kit.registry.saved_files import read_columns
from xformer_kit.study.nodes import Node
from xformer_kit.study.results import Outcome, Results

Curves = dict[str, tuple[list[int], list[float]]]  # metric -> (steps, values)


def results(folder: Path) -> Results:
    """What became of a study so far. Raises ConfigError if the directory holds none."""
    plan = read_plan(folder)
    pool, pruned = (folder / plan["pool"]).resolve(), plan.get("search") is not None
    outcomes = [read_run(run, pool / run["key"], pruned) for run in plan["runs"]]
    return results_of(plan, outcomes, str(folder))


def results_of(plan: Node, outcomes: list[Outcome], folder: str = "") -> Results:
    """plan: as plan.json holds it."""
    return Results(
        plan["study"],
        plan["command"],
        plan["components"],
        plan["variants"],
        outcomes,
        plan.get("search"),
        folder=folder,
    )


def read_run(run: Node, directory: Path, pruned: bool = False) -> Outcome:
    """A run with its curves. One with a damaged metrics.csv counts as failed."""
    now, curves = counted(state.of(directory, pruned), directory)
    return outcome(run, now, str(directory), curves)


def outcome(
    run: Node, now: state.State, directory: str = "", curves: Curves | None = None
) -> Outcome:
    return Outcome(
        run["variant"],
        run["seed"],
        run["key"],
        now.status,
        directory,
        now.step,
        now.why,
        now.facts,
        curves or {},
    )


def counted(now: state.State, directory: Path) -> tuple[state.State, Curves]:
    """A run's state in its study, and its curves: failed if they cannot be read."""
    try:
        return now, read_curves(directory / "metrics.csv")
    except ConfigError as error:
        return state.State("failed", why=str(error)), {}


def read_curves(path: Path) -> Curves:
    """The finite values of a run's metrics.csv. Raises ConfigError for a damaged file."""
    try:
        found = read_columns(path)
    except FileNotFoundError:
        return {}
    finite = {
        name: [pair for pair in zip(*columns, strict=True) if math.isfinite(pair[1])]
        for name, columns in found.items()
    }
    return {
        name: ([step for step, _ in pairs], [value for _, value in pairs])
        for name, pairs in finite.items()
    }
