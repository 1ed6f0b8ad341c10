"""The space of a search: factors with levels or intervals. Conditions and exclusions hold as in any
study.

Optuna proposes points. A point is a level for every factor, as in other designs, so runs and
reports are the same.
"""

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from xformer_kit.metrics import VAL
from xformer_kit.registry import Fault
from xformer_kit.study.design import baseline, circular_conditions, condition_order
from xformer_kit.study.factor import Factor, Factors, Levels
from xformer_kit.study.nodes import Node
from xformer_kit.study.range import MAX_POINTS
from xformer_kit.study.settings import seeds


def faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Settings of a study's complete node that a search does not support."""
    design = node["design"]
    if node["tune"]:
        yield Fault(
            "study.tune",
            "a search already tunes its factors",
            got="a list of values",
            fix="Make each key a factor.",
        )
    confirmed = (1 + design["confirm"]) * (len(seeds(node)) - 1)
    if design["trials"] + confirmed > node["max_runs"]:
        yield Fault(
            "study.max_runs",
            "must hold the runs of the search",
            got=f"{node['max_runs']}, and {design['trials']} trials and {confirmed} others",
            fix="Raise it, or lower study.design.trials.",
        )
    if design["pruner"] != "none" and not node["metric"].startswith(VAL):
        yield Fault(
            "study.design.pruner",
            f"prunes trials by the metric of each validation, and {node['metric']} is measured only"
            " at the end",
            fix=f"Set study.design.pruner=none, or a metric {VAL}....",
        )
    yield from circular_conditions(factors)


def suggest_levels(factors: Factors, trial: Any) -> Levels:
    """The point that an Optuna trial proposes; factors whose condition is not met have their
    baseline level.
    """
    levels = baseline(factors)
    for name in condition_order(factors):
        if factors[name].active(levels):
            levels[name] = _suggest_level(factors[name], trial)
    return levels


def _suggest_level(factor: Factor, trial: Any) -> str:
    between, name = factor.interval, factor.name
    if between is None:
        return trial.suggest_categorical(name, list(factor.levels))
    ends = (name, between.low, between.high)
    if between.integer:
        return factor.label(trial.suggest_int(*ends, step=between.step or 1, log=between.log))
    return factor.label(trial.suggest_float(*ends, step=between.step, log=between.log))


def optuna_parameters(factors: Factors, levels: Levels) -> dict:
    """A point as Optuna's parameters, of the factors whose condition is met."""
    return {
        name: levels[name] if factor.interval is None else json.loads(levels[name])
        for name, factor in factors.items()
        if factor.active(levels)
    }


def all_points(factors: Factors) -> list[Levels] | None:
    """All distinct points of a space, without exclusions; a factor whose condition is not met has
    its baseline. None if a factor has too many values to list, or the product of their numbers is
    above MAX_POINTS.
    """
    each = [factor.labels() for factor in factors.values()]
    known = [labels for labels in each if labels is not None]
    if len(known) < len(each) or math.prod(map(len, known)) > MAX_POINTS:
        return None
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for labels in itertools.product(*known):
        levels = dict(zip(factors, labels, strict=True))
        for name in condition_order(factors):
            if not factors[name].active(levels):
                levels[name] = factors[name].baseline
        found[tuple(levels.items())] = None
    return [dict(key) for key in found]


def describe_space(factors: Factors, exclude: Any) -> dict[str, str]:
    """Factor -> its range as text; equal for searches of the same space."""
    found = {}
    for name, factor in factors.items():
        levels = [
            " ".join(word.removeprefix(f"{name}=") for word in factor.words(x))
            for x in factor.levels
        ]
        ranges = str(factor.interval) if factor.interval else ", ".join(levels)
        only = "; ".join(f"{other}={' or '.join(labels)}" for other, labels in factor.when.items())
        found[name] = ranges + f" (only {only})" * bool(only)
    if exclude:
        found["exclude"] = json.dumps(exclude, sort_keys=True, default=str)
    return found
