"""Formats sizes, shares and times."""

NONE = "-"  # a value that is not known
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def compact(number: float | None, digits: int = 3) -> str:
    """At most three significant digits and a unit: 987, 12.3k, 4.56M."""
    if number is None:
        return NONE
    number = float(f"{number:.{digits}g}")
    for unit, size in reversed(SIZES.items()):
        if size <= abs(number) < 1e21:
            shown = number / size
            whole = len(f"{abs(shown):.0f}")  # digits before the point
            return f"{shown:.{max(0, digits - whole)}f}{unit}"
    return f"{number:.3g}"


def percent(share: float, sign: str = "+") -> str:
    """A share in percent, with two significant digits below 10 % and whole percents from there on.
    sign: that of `format`, "+" for one also before positive numbers, "" for none.
    """
    return f"{100 * share:{sign}{'.2g' if abs(share) < 0.1 else '.0f'}} %"


def clock(seconds: float, digits: int = 3) -> str:
    """A time with at most one decimal and `digits` significant digits: 9.4 min."""
    unit, size = ("s", 1) if seconds < 99.5 else ("min", 60) if seconds < 99.5 * 60 else ("h", 3600)
    number = float(f"{seconds / size:.{digits}g}")
    return f"{number:.{int(digits > len(f'{number:.0f}'))}f} {unit}"
