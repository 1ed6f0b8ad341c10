"""Matches the budget of variants: one cost is made equal to the baseline's by adjusting one config
key (the knob), without training.

Parameters are counted on the meta device, FLOPs are those of training over all tokens, both as in
the run's summary. An integer knob cannot hit every target: the remaining difference is reported,
and above the tolerance the variant is refused with the nearest values.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from xformer_kit.registry import ConfigError, Fault, config_error, to_plain
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.numbers import percent

COST_NAMES = {
    "params": "parameters",
    "flops": "training FLOPs",
    "tokens": "tokens",
    "seconds": "seconds",
}
# Knob -> (group, key) of an option that would decide instead of it.
TURNED_OFF = {"ffn.width": ("ffn", "expand"), "trainer.max_steps": ("trainer", "max_tokens")}
# value of the knob -> relative difference from the target; None if a component refuses the value
Off = Callable[[int], float | None]
Costs = Callable[[Config], float]  # config -> its cost


class Match(NamedTuple):
    """A matched budget of a variant."""

    words: tuple[str, ...]  # overrides of the knob: ffn.width=342
    off: float  # relative difference from the baseline's cost


def match_budget(
    config: Config,
    target: float,
    node: Node,
    costs: Costs,
    refused: Callable[[Config], list[Fault]],
) -> Match:
    """The value of the config's knob with which its cost is `target`. Raises ConfigError if no
    value is within the tolerance.

    The cost grows with the knob, so the two integers around the target are found by bisection; if a
    component refuses one (a width must divide), its neighbours are tried.
    """
    knob = node["by"]

    @cache
    def off(value: int) -> float | None:
        """Relative difference from the target; None if a component refuses the value."""
        changed = with_knob(config, knob, value)
        return None if refused(changed) else costs(changed) / target - 1

    if costs(config) == target:
        return Match((), 0.0)
    high = max(1, current(config, knob))
    while (_nearest_supported(off, high) or 0) < 0 and high < 2**40:
        high *= 2
    # A value counts as too small if no value near it is supported.
    high = bisect_left(range(high), 0.0, 1, key=lambda value: _nearest_supported(off, value) or -1)
    low = max(1, high - 1)
    near = {
        v: share for v in _supported_neighbours(off, low, high) if (share := off(v)) is not None
    }
    if not near:
        raise config_error(
            "study.budget",
            f"the variant's components support no {knob} between {low} and {high}",
        )
    best = min(near, key=lambda value: abs(near[value]))
    if abs(near[best]) > node["tolerance"]:
        raise _unmatched(node, target, near)
    group, key = TURNED_OFF.get(knob, ("", ""))
    is_set = bool(group) and config[group].get(key) is not None
    words = (f"{knob}={best}", *([f"{group}.{key}=null"] if is_set else []))
    return Match(words, near[best])


def _unmatched(node: Node, target: float, near: Mapping[int, float]) -> ConfigError:
    """The error if no value of the knob is within the tolerance; it has the nearest values."""
    knob = node["by"]
    nearest = sorted(near, key=lambda value: abs(near[value]))[:2]
    tried = " and ".join(f"{knob}={value} is off by {percent(near[value])}" for value in nearest)
    target_text = f"{target:,.0f}" if target >= 100 else f"{target:.3g}"
    other = ", or adjust another key with study.budget.by" * (knob != "trainer.max_steps")
    return config_error(
        "study.budget",
        f"the {COST_NAMES[node['match']]} of the baseline, {target_text}, cannot be matched within"
        f" {100 * node['tolerance']:g} % by {knob}: {tried}",
        fix=f"Raise study.budget.tolerance{other}.",
    )


def with_knob(config: Config, knob: str, value: int) -> Config:
    """The config with this value of the knob."""
    changed = to_plain(config)
    group, _, key = knob.partition(".")
    changed[group] = {**changed[group], key: value}
    if knob in TURNED_OFF:
        changed[group][TURNED_OFF[knob][1]] = None
    return changed


def current(config: Config, knob: str) -> int:
    """The knob's value in the config; 4 * model.dim for an ffn.width that is not set."""
    group, _, key = knob.partition(".")
    value = config[group].get(key)
    if value is None and knob == "ffn.width":
        return 4 * config["model"]["dim"]
    return int(value or 0)


MAX_DISTANCE = 64  # values that are tried on either side of a refused one


def _nearest_supported(off: Off, value: int) -> float | None:
    """`off` of the nearest value that is not refused; None if there is none."""
    for step in range(MAX_DISTANCE):
        for near in {value + step, value - step}:
            if near > 0 and (found := off(near)) is not None:
                return found
    return None


def _supported_neighbours(off: Off, low: int, high: int) -> list[int]:
    """The nearest values around the target that are not refused."""
    below, above = range(low, max(0, low - MAX_DISTANCE), -1), range(high, high + MAX_DISTANCE)
    return [
        next((v for v in values if off(v) is not None), end)
        for values, end in ((below, low), (above, high))
    ]
