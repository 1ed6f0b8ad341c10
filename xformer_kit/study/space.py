"""Where does a search look? Factors with levels, and intervals of numbers; conditions and
exclusions hold as in any study.

    factors:
      optim.lr: {low: 1e-4, high: 1e-2, log: true}    # any number between, spread evenly over the
      decades
      model.dim: {low: 32, high: 128, step: 32}       # whole, for its ends are; 32, 64, 96, 128
      ffn: [glu, mlp]

Optuna proposes; a point is a level for every factor, as in other designs, so that runs and reports
are the same.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xformer_kit.registry import nearest, shown

if TYPE_CHECKING:
    from xformer_kit.study.factor import Factor, Levels

KEYS = ("low", "high", "log", "step")
DIGITS = 4  # of a number that is drawn from an interval without steps: more cannot be told apart
COUNTED = 10_000  # points of a space up to which they are written out


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both among them; whole where both ends and the step are."""

    low: float
    high: float
    log: bool = False  # whether they are spread evenly over powers of ten
    step: float | None = None  # between two neighbours; None: 1 of whole numbers, none of others

    @property
    def whole(self) -> bool:
        return all(isinstance(x, int) for x in (self.low, self.high, self.step or 1))

    @property
    def said(self) -> str:
        return (
            f"{self.low:g} to {self.high:g}"
            + (f" by {self.step:g}" if self.step else "")
            + ", log" * self.log
        )

    def values(self) -> list[float] | None:
        """All of them; None where there are too many to count."""
        step = self.step or (1 if self.whole else 0)
        count = round((self.high - self.low) / step) + 1 if step else COUNTED + 1
        return None if count > COUNTED else [self.exact(self.low + i * step) for i in range(count)]

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        on = not self.step or math.isclose(
            steps := (value - self.low) / self.step, round(steps), abs_tol=1e-9
        )
        return self.low <= value <= self.high and on and (not self.whole or isinstance(value, int))

    def exact(self, value: float) -> float:
        """As it is written: without digits that say nothing, and within the ends."""
        if self.whole:
            return int(value)
        rounded = round(value, 12) if self.step else float(f"{value:.{DIGITS}g}")
        return min(max(rounded, float(self.low)), float(self.high))


def interval(path: str, said: Mapping[str, Any]) -> Interval | list[str]:
    """What a factor's mapping with `low` says, or what is wrong with it."""
    for key in said:
        if key not in KEYS:
            return [
                f"{path}.{key}: an interval has no such word.{nearest(str(key), KEYS)} It has:"
                f" {', '.join(KEYS)}."
            ]
    low, high, log, step = (said.get(key) for key in KEYS)
    for key, value in (
        ("low", low),
        ("high", high),
        *((("step", step),) if step is not None else ()),
    ):
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
        ):
            return [
                f"{path}.{key}: must be a number; got {shown(value)}. Try {{low: 1e-4, high: 1e-2,"
                " log: true}."
            ]
    assert low is not None and high is not None
    if log not in (None, True, False):
        return [f"{path}.log: must be true or false; got {shown(log)}."]
    if not low < high:
        way = (
            "Swap them."
            if high < low
            else f"For {shown(low)} alone, list it as a level: [{shown(low)}]."
        )
        return [
            f"{path}: must go from a number to a larger one; got low {shown(low)} and high"
            f" {shown(high)}. {way}"
        ]
    if log and low <= 0:
        return [
            f"{path}.low: must be above 0 on a logarithmic scale; got {shown(low)}. Raise it, or"
            " leave log out."
        ]
    if log and step is not None:
        return [
            f"{path}.step: belongs to an interval without log; got {shown(step)}. Leave one of them"
            " out."
        ]
    if step is not None and (
        step <= 0 or not math.isclose(n := (high - low) / step, round(n), abs_tol=1e-9)
    ):
        return [
            f"{path}.step: must be above 0 and divide high - low; got {shown(step)} and"
            f" {shown(high - low)}."
        ]
    return Interval(low, high, bool(log), step)


def faults(node: Mapping[str, Any], factors: "Mapping[str, Factor]") -> Iterator[str]:
    """What a search cannot do with a study's node. `node["design"]` is complete."""
    design, seeds = node["design"], node["seeds"]
    if node.get("tune"):
        yield (
            "study.tune: a search tunes whatever it varies; got a list of values beside it. Make"
            " each key a factor."
        )
    confirmed = (1 + design["confirm"]) * ((seeds if isinstance(seeds, int) else len(seeds)) - 1)
    if (count := design["trials"] + confirmed) > node["max_runs"]:
        yield (
            f"study.max_runs: must hold the runs of the search; got {node['max_runs']}, and"
            f" {design['trials']} trials with {confirmed} runs that confirm the best make {count}."
            " Raise it, or lower study.design.trials."
        )
    if design["pruner"] != "none" and not node["metric"].startswith("val/"):
        yield (
            "study.design.pruner: ends trials by what each validation measures, and"
            f" {node['metric']} is measured at the end alone. Set study.design.pruner=none, or a"
            " metric val/...."
        )
    yield from circles(factors)


def circles(factors: "Mapping[str, Factor]") -> Iterator[str]:
    """Factors that are varied only under levels of each other."""
    left = set(order(factors))
    if missing := [name for name in factors if name not in left]:
        yield (
            f"study.only: {' and '.join(missing)} wait for each other, so none can leave its"
            " baseline. Leave one out."
        )


def order(factors: "Mapping[str, Factor]") -> list[str]:
    """Names so that a factor comes behind those that its condition names."""
    found: dict[str, None] = {}
    while ready := [
        n for n, f in factors.items() if n not in found and all(other in found for other in f.when)
    ]:
        found |= dict.fromkeys(ready)
    return list(found)


def suggested(factors: "Mapping[str, Factor]", trial: Any) -> "Levels":
    """The point that an Optuna trial proposes; a factor whose condition is not met is not asked
    for.
    """
    levels = {name: factor.baseline for name, factor in factors.items()}
    for name in order(factors):
        factor = factors[name]
        if not all(levels[other] in wanted for other, wanted in factor.when.items()):
            continue
        if (between := factor.interval) is None:
            levels[name] = trial.suggest_categorical(name, list(factor.levels))
        elif between.whole:
            drawn = trial.suggest_int(
                name, between.low, between.high, step=between.step or 1, log=between.log
            )
            levels[name] = factor.label(drawn)
        else:
            drawn = trial.suggest_float(
                name, between.low, between.high, step=between.step, log=between.log
            )
            levels[name] = factor.label(drawn)
    return levels


def parameters(factors: "Mapping[str, Factor]", levels: "Levels") -> dict[str, Any]:
    """A point as Optuna's own parameters, with those alone whose condition is met."""
    met = {
        n: f
        for n, f in factors.items()
        if all(levels[other] in wanted for other, wanted in f.when.items())
    }
    return {n: levels[n] if f.interval is None else json.loads(levels[n]) for n, f in met.items()}


def points(factors: "Mapping[str, Factor]") -> "list[Levels] | None":
    """All points of a space, each once; None where they are too many to count."""
    each = [[*f.levels] if f.interval is None else f.labels() for f in factors.values()]
    if any(labels is None for labels in each) or math.prod(map(len, each)) > COUNTED:  # type: ignore[arg-type]
        return None
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for labels in itertools.product(*each):  # type: ignore[arg-type]
        levels = dict(zip(factors, labels, strict=True))
        for name in order(factors):
            if not all(levels[other] in wanted for other, wanted in factors[name].when.items()):
                levels[name] = factors[name].baseline
        found[tuple(levels.items())] = None
    return [dict(key) for key in found]


def described(factors: "Mapping[str, Factor]", exclude: Any) -> dict[str, str]:
    """Factor -> what it ranges over: two searches of the same space say the same."""
    found = {}
    for name, factor in factors.items():
        levels = [
            " ".join(word.removeprefix(f"{name}=") for word in factor.words(x))
            for x in factor.levels
        ]
        ranges = factor.interval.said if factor.interval else ", ".join(levels)
        only = "; ".join(f"{other}={' or '.join(labels)}" for other, labels in factor.when.items())
        found[name] = ranges + f" (only {only})" * bool(only)
    return found | (
        {"exclude": json.dumps(exclude, sort_keys=True, default=str)} if exclude else {}
    )
