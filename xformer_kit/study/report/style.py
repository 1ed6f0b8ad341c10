"""Styles of variants in figures: each has its own colour, marker and line, so that any one of the
three identifies it.
"""

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.inspect.style import COLOURS, FAINT, LINES, MARKERS
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Figure
from xformer_kit.study.variants import VariantResult

MAX_STYLES = len(COLOURS)  # variants with a style of their own
NAME_WIDTH = 24  # characters per line of a variant's name
SHORT_NAME = 18  # characters of names that fit into two columns of a legend
WIDEST, THINNEST = 4.0, 1.2  # points of the lines of the first and of the last variant


class LineStyle(NamedTuple):
    """The style of a variant. An empty name: one of many faint variants without their own style."""

    color: str
    marker: str
    line: Any
    name: str = ""
    width: float = 0.8  # points

    @property
    def line_options(self) -> dict:
        """Keyword arguments of a line without markers."""
        return {"color": self.color, "linestyle": self.line}

    @property
    def errorbar_options(self) -> dict:
        """Keyword arguments of a marker with an error bar."""
        return {"fmt": self.marker, "color": self.color, "elinewidth": 1.0}

    @property
    def label(self) -> str | None:
        """The text in a legend; None without a name."""
        return wrap_name(self.name) if self.name else None


def variant_styles(content: Content) -> list[LineStyle]:
    """The style of every variant. Of many, only the baseline and the best have their own. Each is
    thinner than those before it, over which it is drawn, so that lines that coincide are visible.
    """
    variants, sign = content.variants, content.metric.sign
    chosen = list(range(len(variants)))
    if len(variants) > MAX_STYLES:
        best = sorted(
            [i for i in chosen[1:] if variants[i].mean is not None],
            key=lambda i: sign * variants[i].mean,
        )
        chosen = [0, *sorted(best[: MAX_STYLES - 1])]
    found = [LineStyle(FAINT, ".", "-")] * len(variants)
    widths = np.linspace(WIDEST, THINNEST, len(chosen))
    each = zip(COLOURS, MARKERS, LINES, strict=True)
    for place, style, width in zip(chosen, each, widths, strict=False):
        found[place] = LineStyle(*style, plot_name(variants[place]), float(width))
    return found


def plot_name(variant: VariantResult) -> str:
    """A variant's name, marked if it was stopped early."""
    return variant.full_name + " (stopped\N{NO-BREAK SPACE}early)" * bool(variant.runs.stopped)


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines at spaces and after separators of config paths."""

    wordsep_re = re.compile(r"( +|(?<=[,=_/])(?=\S)|(?<=\.)(?=[a-z]))")


def wrap_name(name: str, width: int = NAME_WIDTH) -> str:
    """A name, wrapped over several lines if it is long."""
    return "\n".join(_Wrapper(width).wrap(name) or [name])


def legend_height(line_styles: Iterable[LineStyle]) -> float:
    """Height in inches of the legend."""
    own = [style.label for style in line_styles if style.label]
    return 0.2 * -(-sum(1 + name.count("\n") for name in own) // _columns(own))


def _columns(names: list[str]) -> int:
    """Number of columns of a legend with these names."""
    return 2 if all(len(name) <= SHORT_NAME for name in names) else 1


def line_plot(
    name: str,
    title: str,
    note: str,
    draw: Callable[[Any], None],
    x_label: str,
    y_label: str,
    line_styles: Iterable[LineStyle] = (),
    height: float = 3.3,
) -> Figure:
    """A figure with one pair of axes and a legend. draw(axes) draws the lines; height: inches
    without the legend.
    """

    def draw_figure(figure, panels, wide):
        (axes,) = panels
        draw(axes)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        legend(figure, panels, line_styles, wide)

    return Figure(name, title, note, height, draw_figure, below=legend_height(line_styles))


def legend(
    figure: Any, panels: Iterable[Any], line_styles: Iterable[LineStyle] = (), wide: bool = False
) -> None:
    """Adds a legend of all panels, right of them if `wide`, else below; with one entry for all
    variants without their own style.
    """
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True)) | found
    if others := sum(not style.name for style in line_styles):
        found[f"{others} others"] = Line2D([], [], color=FAINT)
    figure.legend(
        found.values(),
        found,
        loc="outside right upper" if wide else "outside lower center",
        ncols=1 if wide else _columns([*found]),
        columnspacing=1.0,
    )
