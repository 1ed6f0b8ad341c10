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
    reasons: Mapping[str, str] = {}  # label -> sentence


def decide(plan: Node, states: Mapping[str, State]) -> StopDecision:
    """plan: content of plan.json. states: key -> state of every run."""
    if not plan["study"].get("stop"):
        return StopDecision()
    found = stop.applied(
        results_of(plan, [outcome(run, states[run["key"]]) for run in plan["runs"]])
    )
    left_out = frozenset(one.key for one in found.outcomes if one.status == "left out")
    return StopDecision(left_out, frozenset(stop.waiting(found)) - left_out, found.stopped)
