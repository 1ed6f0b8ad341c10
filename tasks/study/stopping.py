"""Which runs does a study leave out, now that others have ended? What study.stop decides, from the
states of the runs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.study.state import State
from xformer_kit.study import stop
from xformer_kit.study.results import Outcome, Results


class Look(NamedTuple):
    """`left_out`: keys of runs that are not run any more; `waiting`: of those that may still be;
    `said`: label -> why.
    """

    left_out: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    said: Mapping[str, str] = {}


def look(plan: Mapping[str, Any], states: Mapping[str, State]) -> Look:
    """plan: as plan.json holds it. states: key -> state of every run."""
    if not plan["study"].get("stop"):
        return Look()
    found = stop.applied(
        Results(
            "",
            plan["study"],
            [],
            [],
            plan["variants"],
            [_outcome(run, states) for run in plan["runs"]],
        )
    )
    left_out = frozenset(one.key for one in found.outcomes if one.status == "left out")
    return Look(left_out, frozenset(stop.waiting(found)) - left_out, found.stopped)


def _outcome(run: Mapping[str, Any], states: Mapping[str, State]) -> Outcome:
    now = states[run["key"]]
    return Outcome(
        run["variant"], run["seed"], run["key"], now.status, "", now.step, now.why, now.facts
    )
