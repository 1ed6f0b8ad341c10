"""An interval of numbers, from which a search draws.

optim.lr: {low: 1e-4, high: 1e-2, log: true}    # any number between, log-uniform
model.dim: {low: 32, high: 128, step: 32}       # integers, because its ends are
"""

import math
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import Fault, Registry, above, shown

SETTINGS = Registry("settings")  # of a study

DIGITS = 4  # of a number that is drawn from an interval without steps
COUNTED = 10_000  # points of a space up to which they are listed


@SETTINGS.register("interval")
@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; integers if both ends and the step are."""

    low: float
    high: float
    log: bool = False  # whether they are spread evenly over powers of ten
    step: float | None = None  # between two neighbours; null: 1 of integers, none of others

    @classmethod
    def check(cls, options, context):
        low, high, step = options.low, options.high, options.step
        if not low < high:
            way = "Swap them." if high < low else f"List it as a level: [{shown(low)}]."
            yield Fault(
                "high",
                "must be above low",
                got=f"low {shown(low)} and high {shown(high)}",
                fix=way,
            )
        if options.log:
            yield from above(options, "Raise it, or leave log out.", low=0)
            if step is not None:
                yield Fault(
                    "step",
                    "belongs to an interval without log",
                    got=shown(step),
                    fix="Leave one of them out.",
                )
        elif step is not None and (step <= 0 or not _divides(step, high - low)):
            yield Fault(
                "step",
                "must be above 0 and divide high - low",
                got=f"{shown(step)} and {shown(high - low)}",
            )

    def __str__(self) -> str:
        step = f" by {self.step:g}" if self.step else ""
        return f"{self.low:g} to {self.high:g}{step}{', log' * self.log}"

    @property
    def whole(self) -> bool:
        return all(isinstance(x, int) for x in (self.low, self.high, self.step or 1))

    def values(self) -> list[float] | None:
        """All of them; None if there are too many to count."""
        step = self.step or (1 if self.whole else 0)
        count = round((self.high - self.low) / step) + 1 if step else COUNTED + 1
        return None if count > COUNTED else [self.exact(self.low + i * step) for i in range(count)]

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        on = not self.step or _divides(self.step, value - self.low)
        return self.low <= value <= self.high and on

    def exact(self, value: float) -> float:
        """As it is written: without digits that carry no information, and within the ends."""
        if self.whole:
            return int(value)
        rounded = round(value, 12) if self.step else float(f"{value:.{DIGITS}g}")
        return min(max(rounded, float(self.low)), float(self.high))


def _divides(step: float, length: float) -> bool:
    return math.isclose(length / step, round(length / step), abs_tol=1e-9)
