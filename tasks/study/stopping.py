"""Applies study.stop to the states of all runs: which runs are left out."""

from collections.abc import Mapping
from typing import NamedTuple

from tasks.study.collect import outcome, results_of
from tasks.study.state import State
from xformer_kit.study import stop
from xformer_kit.study.nodes import Node


class StopDecision(NamedTuple):
    """The runs that study.stop leaves out."""

    left_out: frozenset[str] = frozenset()  # keys of runs of stopped variants
    waiting: frozenset[str] = frozenset()  # keys of runs that may still be left out
    reasons: Mapping[str, str] = {}  # label of a stopped variant -> sentence


def decide(plan: Node, states: Mapping[str, State]) -> StopDecision:
    """Returns which runs are left out. plan: content of plan.json. states: key -> state of every
    run.
    """
    if not plan["study"].get("stop"):
        return StopDecision()
    outcomes = [outcome(run, states[run["key"]]) for run in plan["runs"]]
    results = stop.apply_stopping_rule(results_of(plan, outcomes))
    left_out = frozenset(found.key for found in results.outcomes if found.status == "left out")
    return StopDecision(
        left_out, frozenset(stop.undecided_run_keys(results)) - left_out, results.stopped
    )
