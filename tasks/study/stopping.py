"""Which runs study.stop leaves out, from the states of all runs."""

from collections.abc import Mapping
from typing import NamedTuple

from tasks.study.collect import outcome, results_of
from tasks.study.state import State
from xformer_kit.study import stop
from xformer_kit.study.nodes import Node


class StopDecision(NamedTuple):
    left_out: frozenset[str] = frozenset()  # keys of runs that are not run any more
    waiting: frozenset[str] = frozenset()  # keys of runs that may still be left out
    reasons: Mapping[str, str] = {}  # label -> sentence


def decide(plan: Node, states: Mapping[str, State]) -> StopDecision:
    """plan: as plan.json holds it. states: key -> state of every run."""
    if not plan["study"].get("stop"):
        return StopDecision()
    found = stop.applied(
        results_of(plan, [outcome(run, states[run["key"]]) for run in plan["runs"]])
    )
    left_out = frozenset(one.key for one in found.outcomes if one.status == "left out")
    return StopDecision(left_out, frozenset(stop.waiting(found)) - left_out, found.stopped)
