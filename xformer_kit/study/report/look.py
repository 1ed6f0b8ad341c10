"""How do variants look in pictures? By colour, marker and line together, so that any one of them is
enough.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from xformer_kit.inspect.style import COLOURS, FAINT, LINES, MARKERS, styled
from xformer_kit.study.report.arms import Arm
from xformer_kit.study.report.content import Content

MOST = len(COLOURS)  # variants with a look of their own
WIDTH = 4.9  # inches; letters of 10 points are then 10 pixels high on a phone, 390 pixels wide
NAME = 30  # letters of a line of a variant's name
SHORT = 18  # letters of a name of which two stand next to each other in a legend


class Look(NamedTuple):
    color: str
    marker: str
    line: Any
    named: bool  # whether it has a look of its own; the others are all faint


def looks(content: Content) -> list[Look]:
    """Of every arm. Of many only the baseline and the best have their own."""
    arms = content.arms
    chosen = list(range(len(arms)))
    if len(arms) > MOST:
        sign = -1 if content.metric.higher_is_better else 1
        known = [i for i in chosen[1:] if arms[i].best.interval.mean is not None]
        chosen = [
            0,
            *sorted(sorted(known, key=lambda i: sign * arms[i].best.interval.mean)[: MOST - 1]),
        ]
    place = {arm: n for n, arm in enumerate(chosen)}
    faint = Look(FAINT, ".", "-", False)
    return [
        Look(COLOURS[n], MARKERS[n], LINES[n], True) if (n := place.get(i)) is not None else faint
        for i in range(len(arms))
    ]


def title(arm: Arm, *more: str) -> str:
    """A variant's name, and more words, over several lines if they are long."""
    return wrapped(
        " ".join(
            (arm.name, *arm.best.tuned, *(["(stopped early)"] if arm.runs.stopped else []), *more)
        )
    )


class _Wrapper(textwrap.TextWrapper):
    """Lines end at a blank or after a sign between the words of a config's path."""

    wordsep_re = re.compile(r"(\s+|(?<=[,=_/])(?=\S)|(?<=\.)(?=[a-z]))")


def wrapped(name: str, width: int = NAME) -> str:
    """A name over several lines, if it is long."""
    return "\n".join(_Wrapper(width).wrap(name) or [name])


def lines(names: list[str]) -> int:
    """Lines of a legend of these names."""
    return -(-sum(1 + name.count("\n") for name in names) // _columns(names))


def _columns(names: list[str]) -> int:
    return 2 if all(len(name) <= SHORT for name in names) else 1


@dataclass(frozen=True)
class Picture:
    """`draw` calls back with the figure while it may be saved."""

    name: str
    title: str
    note: str
    draw: Callable[[Callable[[Any], Any]], Any]


def legend(figure: Any, axes: Any, others: int) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if others:
        handles, labels = [*handles, Line2D([], [], color=FAINT)], [*labels, f"{others} others"]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels), columnspacing=2.0
    )


@contextmanager
def canvas(height: float, salt: str, panels: tuple[int, int] = (1, 1)) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, of several panels (rows, columns) with common scales, without a screen
    and without matplotlib's global state of figures.
    """
    with styled(salt):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, figure.subplots(*panels, sharex=True, sharey=True)
