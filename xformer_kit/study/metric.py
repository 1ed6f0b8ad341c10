"""Metrics: whether higher is better, the unit, and the number of digits of a value."""

import math
from dataclasses import dataclass
from typing import Any

from xformer_kit.metrics import KNOWN, KnownMetric, direction, known_metric
from xformer_kit.metrics.direction import similar_metric
from xformer_kit.registry import config_error, did_you_mean
from xformer_kit.study.nodes import Node


@dataclass(frozen=True)
class Metric:
    """A measured number of a run. Values are printed times `scale`, in `unit`."""

    name: str  # val/loss
    higher_is_better: bool
    unit: str = ""
    scale: float = 1.0

    @property
    def sign(self) -> int:
        """1 if lower is better, else -1."""
        return -1 if self.higher_is_better else 1

    def side(self, difference: float) -> str:
        """better or worse: a variant with this difference from the baseline."""
        return "better" if (difference > 0) == self.higher_is_better else "worse"

    def format(self, value: float, digits: int | None = None, unit: bool = True) -> str:
        """A value with `digits` decimals; None: as many as `decimals` gives for its size."""
        scaled = value * self.scale
        text = plain(scaled, decimals(scaled) if digits is None else digits)
        return f"{text} {self.unit}" if unit and self.unit else text

    def digits(self, found: Any, default: int | None = 4) -> int | None:
        """Decimals that the width of an interval supports; `default` if there is no interval."""
        if found.low is None or found.high is None:
            return default
        return decimals((found.high - found.low) / 2 * self.scale)

    def estimate(
        self, found: Any, *, digits: int | None = 4, signed: bool = False, unit: bool = False
    ) -> tuple[str, str]:
        """A mean and its interval, such as ("0.120", "0.101 to 0.139"), with the decimals that the
        interval supports; `digits` if there is no interval. Unknown values are "-". found: an
        object with mean, low and high, or None.
        """
        if found is None or found.mean is None:
            return "-", "-"
        digits = self.digits(found, digits)
        text = self.format(found.mean, digits, unit)
        bounds = [
            self.format(x, digits, unit=False) for x in (found.low, found.high) if x is not None
        ]
        if signed:
            text, *bounds = (x if float(x) <= 0 else f"+{x}" for x in (text, *bounds))
        return text, " to ".join(bounds) or "-"

    @property
    def title(self) -> str:
        """The name with its unit: val/loss (nats)."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def format_exact(self, value: float) -> str:
        """A value that is not rounded to an error, such as a margin, with its unit."""
        return f"{value * self.scale:.6g} {self.unit}".rstrip()

    def round_up(self, value: float) -> float:
        """The value rounded up to the decimals of `format`."""
        scaled = value * self.scale
        for _ in range(2):  # 0.0353 becomes 0.036, which is shown as 0.04
            unit = 10.0 ** -decimals(scaled)
            scaled = math.ceil(scaled / unit - 1e-9) * unit
        return scaled / self.scale


def metric_of(node: Node) -> Metric:
    """The metric by which a study compares its variants."""
    return metric(node["metric"], node.get("higher_is_better"))


def metric(name: str, higher_is_better: bool | None = None) -> Metric:
    """Returns the metric of a name such as val/loss, val/books/perplexity or test/hard_exact_match.

    Its last part ends in a known word (exact_match), which determines the unit and, unless
    `higher_is_better` is set, whether higher is better. Raises ConfigError if neither does.
    """
    higher = direction(name) if higher_is_better is None else higher_is_better
    if higher is None:
        costs = sorted(cost for cost, known in KNOWN.items() if known.cost)
        hint = similar_metric(name) or did_you_mean(name.rpartition("/")[2], costs)
        rule = f"it is not known whether '{name}' is better higher or lower"
        raise config_error("study.metric", rule, fix=f"{hint}Known: {', '.join(KNOWN)}.")
    known = known_metric(name) or KnownMetric()
    return Metric(name, higher, known.unit, known.scale)


def decimals(error: float) -> int:
    """Decimals for an error of this size: two significant digits of the error if they are 10 to 35,
    one if they are 36 to 94 (the rule of the Particle Data Group, Review of Particle Physics,
    Introduction 5.3).
    """
    if not error or not math.isfinite(error):
        return 4
    return max(0, places(error))


def places(error: float) -> int:
    """The last decimal place of a number with an error of this size other than 0, as in `decimals`;
    -2 for hundreds.
    """
    exponent = math.floor(math.log10(abs(error)))
    lead = abs(error) / 10.0**exponent
    return -exponent + (1 if lead < 3.55 else 0)


def significant_digits(value: float, low: float | None, high: float | None) -> int:
    """The significant digits, 1 to 3, of a positive value that its interval supports; 2 without an
    interval.
    """
    if low is None or high is None:
        return 2
    if low == high:
        return 3
    return min(3, max(1, math.floor(math.log10(value)) + 1 + places((high - low) / 2)))


def format_p(p: float, alpha: float = 0.05) -> str:
    """p = 0.0004. Rounding never moves p across alpha."""
    if p < 1e-4:
        return "p < 0.0001"
    for digits in (1 if p < 1e-3 else 2, 3, 4, 6, 17):
        text = plain(p, max(0, digits - 1 - math.floor(math.log10(p))))
        if (float(text) <= alpha) == (p <= alpha):
            break
    return f"p = {text.rstrip('0').rstrip('.') if '.' in text else text}"


def plain(value: float, digits: int) -> str:
    """A number with fixed decimals, without the sign of a rounded zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
