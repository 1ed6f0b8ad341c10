"""Names of lines, at their ends."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from xformer_kit.study.report.style import LineStyle

LINE = 13.0  # points from one line of text to the next
AXES_SHARE = 0.75  # of the height of a figure with one row of panels, at least
OFFSET = 22.0  # points from the axes to the names


class LineEnd(NamedTuple):
    """The last point of a line, in data coordinates, and the text at it."""

    x: float
    y: float
    text: str
    style: LineStyle


def label_ends(axes: Any, ends: Sequence[LineEnd]) -> None:
    """Writes the names of lines right of the axes, each at the height of its line's end, or next to
    it if it would overlap another name. A thin line connects the end with the marker and the name.

    The limits of the axes must be set.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = axes.figure
    points = AXES_SHARE * figure.get_figheight() * 72
    ends = sorted(ends, key=lambda end: -end.y)
    low, high = axes.get_ylim()
    wanted = [(min(max(end.y, low), high) - low) / (high - low) for end in ends]
    heights = [LINE / points * (1 + end.text.count("\n")) for end in ends]
    right = axes.transAxes + ScaledTranslation(OFFSET / 72, 0, figure.dpi_scale_trans)
    for end, y in zip(ends, spread(wanted, heights), strict=True):
        axes.annotate(
            end.text,
            (end.x, min(max(end.y, low), high)),
            (1.0, y),
            textcoords=right,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.style.color,
                "linewidth": 0.7,
                "relpos": (0.0, 0.5),
                "shrinkA": OFFSET / 2,
                "shrinkB": 0,
            },
        )
        marker = axes.transAxes + ScaledTranslation((OFFSET - 7) / 72, 0, figure.dpi_scale_trans)
        options = {"color": end.style.color, "marker": end.style.marker, "clip_on": False}
        axes.plot(1.0, y, linestyle="", transform=marker, **options)


def spread(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Returns positions of boxes with these heights that do not overlap, in the same order, near
    those that are wanted, which decrease. If there is room between 0 and 1, they are within.
    """
    gaps = [(a + b) / 2 for a, b in pairwise(heights)]
    found = list(wanted)
    for i, gap in enumerate(gaps, 1):  # down from the first
        found[i] = min(found[i], found[i - 1] - gap)
    floor = 0.0
    for i in reversed(range(len(found))):  # up from the last
        found[i] = max(found[i], floor)
        floor = found[i] + (gaps[i - 1] if i else 0.0)
    return found
