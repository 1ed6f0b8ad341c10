"""The budget: one size is made equal to the baseline's by turning a knob,
found from the config only.

Parameters are those of the model on the meta device, FLOPs those of training over all tokens, each
counted as the run's summary counts them. A knob that takes whole numbers cannot hit every target:
what is missed is reported, and beyond the tolerance the variant is refused with the nearest sizes.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from xformer_kit.registry import ConfigError, Fault, config_error, plain
from xformer_kit.study.nodes import Config, Node

SHOWN = {
    "params": "parameters",
    "flops": "training FLOPs",
    "tokens": "tokens",
    "seconds": "seconds",
}
Off = Callable[[int], float | None]  # share by which a value of the knob misses the target
Costs = Callable[[Config], float]  # config -> how much it has of what is matched


class Match(NamedTuple):
    """A variant brought to the budget."""

    config: Config
    words: tuple[str, ...]  # the knob that was turned: ffn.width=342
    off: float  # share by which it misses the baseline's


def matched(
    config: Config,
    target: float,
    node: Node,
    costs: Costs,
    refused: Callable[[Config], list[Fault]],
) -> Match:
    """The config with its knob turned so that it costs `target`. Raises ConfigError where nothing
    comes near enough.

    The cost grows with the knob, so the two whole numbers around the target are found by bisection;
    where a component refuses one (a width must divide), its neighbours are tried.
    """
    what, knob, tolerance = node["match"], node["by"], node["tolerance"]

    @cache
    def off(value: int) -> float | None:
        """Share by which a value misses the target; None where a component refuses it."""
        changed = turned(config, knob, value)
        return None if refused(changed) else costs(changed) / target - 1

    if (here := costs(config) / target - 1) == 0:
        return Match(config, (), here)
    low, high = _around(off, max(1, current(config, knob)))
    shares = {value: off(value) for value in _neighbours(off, low, high)}
    near = {value: share for value, share in shares.items() if share is not None}
    if not near:
        raise config_error(
            "study.budget",
            f"no {knob} between {low} and {high} is one that the variant's components can have",
        )
    best = min(near, key=lambda value: abs(near[value]))
    if abs(near[best]) > tolerance:
        raise ConfigError(_unmatched(what, knob, target, tolerance, near))
    words = (
        f"{knob}={best}",
        *(["ffn.expand=null"] if knob == "ffn.width" and config["ffn"].get("expand") else []),
    )
    return Match(turned(config, knob, best), words, near[best])


def _unmatched(
    what: str, knob: str, target: float, tolerance: float, near: Mapping[int, float]
) -> Fault:
    nearest = sorted(near, key=lambda value: abs(near[value]))[:2]
    tried = " and ".join(f"{knob}={value} is off by {_percent(near[value])}" for value in nearest)
    # Without decimals where there are three digits without them.
    shown = f"{target:,.0f}" if target >= 100 else f"{target:.3g}"
    other = ", or turn another knob" * (knob != "trainer.max_steps")
    return Fault(
        "study.budget",
        f"the {SHOWN[what]} of the baseline, {shown}, cannot be matched within"
        f" {100 * tolerance:g} % by {knob}: {tried}",
        fix=f"Raise study.budget.tolerance{other}.",
    )


def _percent(share: float) -> str:
    """With one decimal, or as many as it takes to be no zero."""
    number = 100 * share
    return f"{number:+.1f} %" if abs(number) >= 0.05 else f"{number:+.1g} %"


def turned(config: Config, knob: str, value: int) -> Config:
    """The config with another value of the knob."""
    changed = plain(config)
    group, _, key = knob.partition(".")
    changed[group] = {**changed[group], key: value}
    if knob == "ffn.width":
        changed[group]["expand"] = None
    return changed


def lengthened(config: Config, tokens: float, per_step: float) -> tuple[Config, float]:
    """The config with the optimizer steps that come nearest to so many tokens, and the share by
    which they miss it.
    """
    steps = max(1, round(tokens / per_step))
    return turned(config, "trainer.max_steps", steps), steps * per_step / tokens - 1


def current(config: Config, knob: str) -> int:
    """Where the search begins: the knob's value, or for a width that is not given four times the
    channels.
    """
    group, _, key = knob.partition(".")
    value = config[group].get(key)
    if value is None and knob == "ffn.width":
        return 4 * config["model"]["dim"]
    return int(value or 0)


def _around(off: Off, start: int) -> tuple[int, int]:
    """Two values between which the target lies, from where the search begins."""
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


REACH = 64  # values on either side of one that is refused


def _nearest(off: Off, value: int) -> float | None:
    """What the nearest value that is not refused misses."""
    for step in range(REACH):
        for near in {value + step, value - step}:
            if near > 0 and (found := off(near)) is not None:
                return found
    return None


def _neighbours(off: Off, low: int, high: int) -> list[int]:
    """The values around the target: on either side the nearest that is not refused."""
    below, above = range(low, max(0, low - REACH), -1), range(high, high + REACH)
    return [
        next((v for v in values if off(v) is not None), end)
        for values, end in ((below, low), (above, high))
    ]
