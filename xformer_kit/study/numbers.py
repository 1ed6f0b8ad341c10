"""Formats sizes, shares and times."""

NONE = "-"  # a value that is not known
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def compact(number: float | None) -> str:
    """Three significant digits and a unit: 987, 12.3k, 4.56M."""
    if number is None:
        return NONE
    for unit, size in reversed(SIZES.items()):
        if abs(number) >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + unit
    return f"{number:.3g}"


def percent(share: float, sign: str = "+") -> str:
    """A share in percent, with two significant digits below 10 % and whole percents from there on.
    sign: that of `format`, "+" for one also before positive numbers, "" for none.
    """
    return f"{100 * share:{sign}{'.2g' if abs(share) < 0.1 else '.0f'}} %"


def clock(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
