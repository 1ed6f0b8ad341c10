"""An interval of numbers, from which a search draws.

optim.lr: {low: 1e-4, high: 1e-2, log: true}    # log-uniform
model.dim: {low: 32, high: 128, step: 32}       # integers, because low, high and step are
"""

import math
from dataclasses import dataclass
from typing import Any

from xformer_kit.registry import Fault, Registry, above

SETTINGS = Registry("settings")  # of a study

DIGITS = 4  # significant digits of a number from an interval without steps
MAX_POINTS = 10_000  # larger spaces are not enumerated


@SETTINGS.register("interval")
@dataclass(frozen=True)
class FactorRange:
    """Numbers from `low` to `high`, both included; integers if both ends and the step are."""

    low: float
    high: float
    log: bool = False  # whether numbers are drawn log-uniformly
    step: float | None = None  # distance of neighbours; null: 1 for integers, else continuous

    @classmethod
    def check(cls, options, context):
        low, high, step = options.low, options.high, options.step
        if not low < high:
            yield Fault(
                "high",
                "must be above low",
                got=f"low {low} and high {high}",
            )
        if options.log:
            yield from above(options, "Raise it, or leave log out.", low=0)
            if step is not None:
                yield Fault(
                    "step",
                    "belongs to an interval without log",
                    got=step,
                    fix="Leave one of them out.",
                )
        elif step is not None and (step <= 0 or not _divides(step, high - low)):
            yield Fault(
                "step",
                "must be above 0 and divide high - low",
                got=f"{step} and {high - low}",
            )

    def __str__(self) -> str:
        step = f" by {self.step:g}" if self.step else ""
        return f"{self.low:g} to {self.high:g}{step}{', log' * self.log}"

    @property
    def integer(self) -> bool:
        """Whether all numbers of the interval are integers."""
        return all(isinstance(x, int) for x in (self.low, self.high, self.step or 1))

    def values(self) -> list[float] | None:
        """All numbers; None if there are more than MAX_POINTS."""
        step = self.step or (1 if self.integer else 0)
        count = round((self.high - self.low) / step) + 1 if step else MAX_POINTS + 1
        if count > MAX_POINTS:
            return None
        return [self.rounded(self.low + i * step) for i in range(count)]

    def contains(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.integer else (int, float)):
            return False
        on_step = not self.step or _divides(self.step, value - self.low)
        return self.low <= value <= self.high and on_step

    def rounded(self, value: float) -> float:
        """The value with DIGITS significant digits, clamped to the interval."""
        if self.integer:
            return int(value)
        rounded = round(value, 12) if self.step else float(f"{value:.{DIGITS}g}")
        return min(max(rounded, float(self.low)), float(self.high))


def _divides(step: float, length: float) -> bool:
    """Whether the length is a multiple of the step, except for rounding."""
    return math.isclose(length / step, round(length / step), abs_tol=1e-9)
