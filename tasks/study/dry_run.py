"""Prints the variants, sizes and cost of a study without training (study.dry_run=true)."""

from collections.abc import Callable, Collection
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from tasks.logging import startup
from tasks.logging.console import create_console
from tasks.study import ladder_steps, stopping
from tasks.study.resolve import StudyPlan
from xformer_kit.study import space
from xformer_kit.study.numbers import clock, compact
from xformer_kit.study.plan import Variant
from xformer_kit.study.study_node import levels_of

NARROW = 100  # columns of a terminal below which the columns of the table are closer
HEADINGS = ("params", "training\nFLOPs", "tokens", "steps", "s/step", "a run")


def measure_outside(plan: StudyPlan, trial_seconds: Callable[[Any, Any], float]) -> float:
    """Returns the seconds of a run that are not of its steps and validations, by training the
    baseline for one step; 0 if no run is missing. trial_seconds: trains a config for one step.
    """
    if not (plan.adaptive or _missing(plan)[0]):
        return 0.0
    startup.show("Measuring the time of a run", plain=False)
    config, steps = plan.variants[0].config, plan.costs.clock
    seconds = trial_seconds(config, plan.components)
    startup.clear()
    inside = steps(config) + steps.validation(config, plan.costs.data(config))
    return max(0.0, seconds - inside)


def show(plan: StudyPlan, outside: float, console: Any = None) -> None:
    """Prints the variants with their sizes, and the total time of all missing runs.

    outside: seconds of a run that are not in the variants' costs.
    """
    console = console or create_console()
    if not console.is_terminal:  # a file has no width
        console = create_console(width=200)
    columns = [Column(name, justify="right", no_wrap=True) for name in HEADINGS]
    # These two are folded on a narrow terminal: a number that is cut off would be another number.
    budget = Column("budget", justify="right", overflow="fold")
    table = _table(Column("variant", overflow="fold"), *columns, budget)
    table.collapse_padding = console.width < NARROW
    for variant in plan.variants:
        cost = variant.cost
        difference = " ".join((*variant.knob, f"{100 * variant.off:+.2f}\u00a0%"))
        table.add_row(
            variant.title,
            compact(cost["params"]),
            f"{cost['flops']:.3g}",
            compact(cost["tokens"]),
            f"{cost['steps']:,.0f}",
            f"{cost['seconds'] / cost['steps']:.3f}",
            clock(_run_seconds(variant, outside)),
            "-" if plan.node["budget"]["match"] == "none" else difference,
        )
    console.print(table)
    if plan.adaptive:
        console.print(_search_space(plan, outside))
        return
    if plan.node["design"]["name"] == "ladder":
        console.print(f"\n{ladder_steps.ladder(plan)}")
    console.print(f"\n{_missing_runs(plan, outside)}")


def _table(*columns: Column) -> Table:
    """Returns an empty table without lines."""
    return Table(*columns, box=None, header_style="dim", pad_edge=False)


def _run_seconds(variant: Variant, outside: float) -> float:
    """Returns the seconds of a run."""
    return variant.cost["seconds"] + variant.cost["overhead"] + outside


def _missing(plan: StudyPlan) -> tuple[list[Any], Collection[str]]:
    """Returns (runs without a result, keys of the runs that study.stop leaves out)."""
    states = {run.key: plan.state(run) for run in plan.runs}
    left_out = stopping.decide(plan.plain(), states).left_out
    missing = [run for run in plan.runs if not states[run.key].over and run.key not in left_out]
    return missing, left_out


def _missing_runs(plan: StudyPlan, outside: float) -> str:
    """Returns the number of runs and the time of the missing ones, as text."""
    missing, left_out = _missing(plan)
    done = len(plan.runs) - len(missing) - len(left_out)
    if done == len(plan.runs):
        return f"{done} runs, all of them done."
    seconds = sum(_run_seconds(run.variant, outside) for run in missing)
    text = (
        f"{len(plan.runs)} runs, {done} of them done; the others take about {clock(seconds)} in"
        " sequence, measured on this machine at its current load. Reading data for the first time"
        " and the report are not included."
    )
    if plan.node["stop"]:
        text += (
            "\nThis is an upper bound: study.stop can stop variants after"
            f" {plan.node['stop']['after']} seeds."
        )
        text += f" {len(left_out)} are left out already." if left_out else ""
    return text


def _search_space(plan: StudyPlan, outside: float) -> Any:
    """Returns the space of a search, and its time if all points had the cost of the baseline."""
    node = plan.node
    factors, _ = levels_of(node)
    table = _table(*(Column(name, overflow="fold") for name in ("factor", "baseline", "range")))
    for name, ranges in space.describe_space(factors, node["exclude"]).items():
        table.add_row(name, factors[name].baseline if name in factors else "", ranges)
    trials, seeds = node["design"]["trials"], len({run.seed for run in plan.runs})
    confirmations = (1 + node["design"]["confirm"]) * (seeds - 1)
    seconds = _run_seconds(plan.variants[0], outside) * (trials + confirmations)
    text = (
        f"{trials} trials by {node['design']['sampler']}, and {confirmations} runs that confirm the"
        " best at other seeds. If all have the cost of the baseline and none is pruned, they take"
        f" about {clock(seconds)} in sequence."
    )
    return Group(Text(), table, Text(), Text(text))
