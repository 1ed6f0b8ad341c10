"""The style of all pictures, which can be read without colours.

The colours are those of Okabe and Ito (2008), which colour-blind readers can distinguish, without
yellow, which is hard to read on paper.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from xformer_kit.registry import config_error

INK, FAINT = "#1a1a1a", "#9a9a9a"
COLOURS = (INK, "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#7a5c00", "#56b4e9", "#6a3d9a")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (6, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (8, 2, 1, 2)),
    (0, (1, 2.5)),
)
WIDTH = 7.2  # inches

SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "figure.dpi": 100,
    "path.simplify": True,
}


def require_matplotlib() -> None:
    """Raises ConfigError if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise config_error(
            "plot",
            "needs the package matplotlib",
            got="none",
            fix='Use pip install "xformer_kit[study]".',
        )


@contextmanager
def plot_style(salt: str = "") -> Iterator[Any]:
    """Sets the style in which figures are drawn and saved in this context. `salt` makes the names
    in an SVG reproducible.
    """
    import matplotlib

    with matplotlib.rc_context(SETTINGS | {"svg.hashsalt": salt}):
        yield matplotlib


def line_style(i: int) -> dict[str, Any]:
    """Colour, line style and marker of line i; each of the three identifies it."""
    count = len(COLOURS)
    return {
        "color": COLOURS[i % count],
        "linestyle": LINES[i % count],
        "marker": MARKERS[(i + i // count) % count],
    }


def marker_places(i: int, points: int) -> dict[str, Any]:
    """Places of about eight markers on line i, different from those of the next lines."""
    every = max(1, points // 8)
    return {"markevery": (i * every // 8 % every, every)}


def integer_ticks(axis: Any) -> None:
    """Sets the ticks of an axis to integers with exact labels, such as 12,500."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    axis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def loss_limits(
    lines: Iterable[tuple[Sequence[float], Sequence[float]]], cap: float = math.inf
) -> tuple[float, float] | None:
    """Limits of the axis of a loss, from (steps, values) of each line; None if all values are equal
    or none is finite.

    The first tenth of each line's own steps is ignored, since a loss starts far above its later
    values; so a run that ended early is visible too. Values above `cap` are ignored, see
    `divergence_cap`.
    """
    late = [
        y
        for steps, values in lines
        for step, y in zip(steps, values, strict=True)
        if step >= 0.1 * steps[-1] and math.isfinite(y) and y <= cap
    ]
    if not late or max(late) == min(late):
        return None
    margin = 0.06 * (max(late) - min(late))
    return min(late) - margin, max(late) + margin


def divergence_cap(lines: Iterable[Sequence[float]]) -> float:
    """The value above which a loss counts as diverged: three times the highest first value of a
    line. With such values on the axis all other lines would be flat.
    """
    firsts = [next(filter(math.isfinite, values), 0.0) for values in lines]
    highest = max(firsts, default=0.0)
    return 3 * highest if highest > 0 else math.inf
