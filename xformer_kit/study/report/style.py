"""Variants in figures differ by colour, marker and line together, so that any one of them is
enough.
"""

import re
import textwrap
from collections.abc import Iterable
from typing import Any, NamedTuple

from xformer_kit.inspect.style import COLOURS, FAINT, LINES, MARKERS
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.variants import VariantResult

MOST = len(COLOURS)  # variants with a style of their own
NAME = 30  # letters of a line of a variant's name
SHORT = 18  # letters of a name of which two stand next to each other in a legend


class LineStyle(NamedTuple):
    """Of a variant. Those without a name have no style of their own: they are all faint."""

    color: str
    marker: str
    line: Any
    name: str = ""

    @property
    def joined(self) -> dict:
        """Of a line without markers, as keywords of matplotlib."""
        return {"color": self.color, "linestyle": self.line}

    @property
    def sign(self) -> dict:
        """Of a sign with an error bar."""
        return {"fmt": self.marker, "color": self.color, "elinewidth": 1.0}

    @property
    def label(self) -> str | None:
        """In a legend."""
        return wrapped(self.name) if self.name else None


def styles(content: Content) -> list[LineStyle]:
    """Of every variant. Of many only the baseline and the best have their own."""
    variants, sign = content.variants, content.metric.sign
    chosen = list(range(len(variants)))
    if len(variants) > MOST:
        best = sorted(
            [i for i in chosen[1:] if variants[i].mean is not None],
            key=lambda i: sign * variants[i].mean,
        )
        chosen = [0, *sorted(best[: MOST - 1])]
    found = [LineStyle(FAINT, ".", "-")] * len(variants)
    for place, style in zip(chosen, zip(COLOURS, MARKERS, LINES, strict=True), strict=False):
        found[place] = LineStyle(*style, title(variants[place]))
    return found


def title(variant: VariantResult) -> str:
    """A variant's name, marked if it was stopped early."""
    return variant.full_name + " (stopped early)" * bool(variant.runs.stopped)


class _Wrapper(textwrap.TextWrapper):
    """Lines end at a blank or after a sign between the words of a config's path."""

    wordsep_re = re.compile(r"(\s+|(?<=[,=_/])(?=\S)|(?<=\.)(?=[a-z]))")


def wrapped(name: str, width: int = NAME) -> str:
    """A name over several lines, if it is long."""
    return "\n".join(_Wrapper(width).wrap(name) or [name])


def legend_height(styles: Iterable[LineStyle]) -> float:
    """Inches of the legend of the variants that have a style of their own."""
    own = [style.label for style in styles if style.label]
    return 0.2 * -(-sum(1 + name.count("\n") for name in own) // _columns(own))


def _columns(names: list[str]) -> int:
    return 2 if all(len(name) <= SHORT for name in names) else 1


def label_axes(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def legend(figure: Any, axes: Any, styles: Iterable[LineStyle] = ()) -> None:
    """A legend below the axes, with an entry for all variants that have no style of their own."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if others := sum(not style.name for style in styles):
        handles, labels = [*handles, Line2D([], [], color=FAINT)], [*labels, f"{others} others"]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels), columnspacing=2.0
    )
