"""The style of all pictures, legible without colours.

The colours are those of Okabe and Ito (2008), which are distinct also for the colour-blind, without
yellow, which is faint on paper.
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
    "svg.fonttype": "none",  # words stay words: they can be found, and read aloud
    "figure.dpi": 100,
    "path.simplify": True,
}


def drawable() -> None:
    """Raises ConfigError if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise config_error(
            "plot",
            "needs the package matplotlib",
            got="none",
            fix='Use pip install "xformer_kit[study]".',
        )


@contextmanager
def styled(salt: str = "") -> Iterator[Any]:
    """Settings under which a figure is drawn and saved. `salt` makes the names in an SVG
    reproducible.
    """
    import matplotlib

    with matplotlib.rc_context(SETTINGS | {"svg.hashsalt": salt}):
        yield matplotlib


def line_style(i: int) -> dict[str, Any]:
    """Colour, line and marker of line i: any one of them identifies it."""
    every = len(COLOURS)
    return {
        "color": COLOURS[i % every],
        "linestyle": LINES[i % every],
        "marker": MARKERS[(i + i // every) % every],
    }


def markers(i: int, points: int) -> dict[str, Any]:
    """About eight markers on line i, at other places than on the lines next to it."""
    every = max(1, points // 8)
    return {"markevery": (i * every // 8 % every, every)}


def whole(axis: Any) -> None:
    """Ticks of an axis that counts: whole numbers, each labelled exactly, such as 12,500."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    axis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def bounds(lines: Iterable[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float] | None:
    """Bounds of the axis of a loss, given (steps, values) of each line; None if there is nothing to
    choose.

    The first tenth of a line is left out, for a loss falls from far above there, which would hide
    all differences. It is a tenth of its own steps, so that a run that ended early is shown too.
    """
    late = [
        y
        for steps, values in lines
        for step, y in zip(steps, values, strict=True)
        if step >= 0.1 * steps[-1] and math.isfinite(y)
    ]
    if not late or max(late) == min(late):
        return None
    room = 0.06 * (max(late) - min(late))
    return min(late) - room, max(late) + room
