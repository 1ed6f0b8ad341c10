"""Matches the budget of variants: one cost is made equal to the baseline's by adjusting one config
key (the knob), without training.

Parameters are counted on the meta device, FLOPs are those of training over all tokens, both as in
the run's summary. An integer knob cannot hit every target: the remaining difference is reported,
and above the tolerance the variant is refused with the nearest values.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from xformer_kit.registry import ConfigError, Fault, config_error, to_plain
from xformer_kit.study.nodes import Config, Node

COST_NAMES = {
    "params": "parameters",
    "flops": "training FLOPs",
    "tokens": "tokens",
    "seconds": "seconds",
}
# value of the knob -> relative difference to the target; None if a component refuses the value
Off = Callable[[int], float | None]
Costs = Callable[[Config], float]  # config -> its cost


class Match(NamedTuple):
    """A variant with a matched budget."""

    config: Config
    words: tuple[str, ...]  # overrides of the knob: ffn.width=342
    off: float  # relative difference to the baseline's cost


def matched(
    config: Config,
    target: float,
    node: Node,
    costs: Costs,
    refused: Callable[[Config], list[Fault]],
) -> Match:
    """The config with its knob adjusted so that its cost is `target`. Raises ConfigError if no
    value is within the tolerance.

    The cost grows with the knob, so the two integers around the target are found by bisection; if a
    component refuses one (a width must divide), its neighbours are tried.
    """
    matched_cost, knob, tolerance = node["match"], node["by"], node["tolerance"]

    @cache
    def off(value: int) -> float | None:
        """Relative difference to the target; None if a component refuses the value."""
        changed = with_knob(config, knob, value)
        return None if refused(changed) else costs(changed) / target - 1

    if (current_off := costs(config) / target - 1) == 0:
        return Match(config, (), current_off)
    low, high = _around(off, max(1, current(config, knob)))
    shares = {value: off(value) for value in _neighbours(off, low, high)}
    near = {value: share for value, share in shares.items() if share is not None}
    if not near:
        raise config_error(
            "study.budget",
            f"the variant's components support no {knob} between {low} and {high}",
        )
    best = min(near, key=lambda value: abs(near[value]))
    if abs(near[best]) > tolerance:
        raise ConfigError(_unmatched(matched_cost, knob, target, tolerance, near))
    words = (
        f"{knob}={best}",
        *(["ffn.expand=null"] if knob == "ffn.width" and config["ffn"].get("expand") else []),
    )
    return Match(with_knob(config, knob, best), words, near[best])


def _unmatched(
    cost: str, knob: str, target: float, tolerance: float, near: Mapping[int, float]
) -> Fault:
    nearest = sorted(near, key=lambda value: abs(near[value]))[:2]
    tried = " and ".join(f"{knob}={value} is off by {_percent(near[value])}" for value in nearest)
    target_text = f"{target:,.0f}" if target >= 100 else f"{target:.3g}"
    other = ", or adjust another key with study.budget.by" * (knob != "trainer.max_steps")
    return Fault(
        "study.budget",
        f"the {COST_NAMES[cost]} of the baseline, {target_text}, cannot be matched within"
        f" {100 * tolerance:g} % by {knob}: {tried}",
        fix=f"Raise study.budget.tolerance{other}.",
    )


def _percent(share: float) -> str:
    """In percent, with one decimal or one significant digit."""
    number = 100 * share
    return f"{number:+.1f} %" if abs(number) >= 0.05 else f"{number:+.1g} %"


def with_knob(config: Config, knob: str, value: int) -> Config:
    """The config with this value of the knob."""
    changed = to_plain(config)
    group, _, key = knob.partition(".")
    changed[group] = {**changed[group], key: value}
    if knob == "ffn.width":
        changed[group]["expand"] = None
    return changed


def with_tokens(config: Config, tokens: float, per_step: float) -> tuple[Config, float]:
    """The config with the optimizer steps nearest to a number of training tokens, and their
    relative difference to it.
    """
    steps = max(1, round(tokens / per_step))
    return with_knob(config, "trainer.max_steps", steps), steps * per_step / tokens - 1


def current(config: Config, knob: str) -> int:
    """The knob's value in the config; 4 * model.dim for an ffn.width that is not set."""
    group, _, key = knob.partition(".")
    value = config[group].get(key)
    if value is None and knob == "ffn.width":
        return 4 * config["model"]["dim"]
    return int(value or 0)


def _around(off: Off, start: int) -> tuple[int, int]:
    """Two neighbouring values around the target; the search begins at `start`."""
    low = high = start
    while (found := _nearest(off, low)) is not None and found > 0 and low > 1:
        low //= 2
    while (found := _nearest(off, high)) is not None and found < 0 and high < 2**40:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if (found := _nearest(off, middle)) is None or found < 0:
            low = middle
        else:
            high = middle
    return low, high


MAX_DISTANCE = 64  # values that are tried on either side of a refused one


def _nearest(off: Off, value: int) -> float | None:
    """`off` of the nearest value that is not refused; None if there is none."""
    for step in range(MAX_DISTANCE):
        for near in {value + step, value - step}:
            if near > 0 and (found := off(near)) is not None:
                return found
    return None


def _neighbours(off: Off, low: int, high: int) -> list[int]:
    """The nearest values around the target that are not refused."""
    below, above = range(low, max(0, low - MAX_DISTANCE), -1), range(high, high + MAX_DISTANCE)
    return [
        next((v for v in values if off(v) is not None), end)
        for values, end in ((below, low), (above, high))
    ]
