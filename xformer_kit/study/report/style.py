"""Variants in figures differ by colour, marker and line together, so that any one of them is
enough.
"""

import re
import textwrap
from typing import Any, NamedTuple

from xformer_kit.inspect.style import COLOURS, FAINT, LINES, MARKERS
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.variants import VariantResult

MOST = len(COLOURS)  # variants with a style of their own
NAME = 30  # letters of a line of a variant's name
SHORT = 18  # letters of a name of which two stand next to each other in a legend


class LineStyle(NamedTuple):
    color: str
    marker: str
    line: Any
    named: bool  # whether it is the variant's own; the others are all faint

    @property
    def joined(self) -> dict:
        """Of a line without markers, as keywords of matplotlib."""
        return {"color": self.color, "linestyle": self.line}


def styles(content: Content) -> list[LineStyle]:
    """Of every variant. Of many only the baseline and the best have their own."""
    variants, sign = content.variants, content.metric.sign
    chosen = list(range(len(variants)))
    if len(variants) > MOST:
        known = [i for i in chosen[1:] if variants[i].mean is not None]
        best = sorted(known, key=lambda i: sign * variants[i].mean)
        chosen = [0, *sorted(best[: MOST - 1])]
    found = [LineStyle(FAINT, ".", "-", False)] * len(variants)
    for place, style in zip(chosen, zip(COLOURS, MARKERS, LINES, strict=True), strict=False):
        found[place] = LineStyle(*style, True)
    return found


def title(variant: VariantResult, *more: str) -> str:
    """A variant's name, and more words, over several lines if they are long."""
    early = ["(stopped early)"] if variant.runs.stopped else []
    return wrapped(" ".join((variant.full_name, *early, *more)))


class _Wrapper(textwrap.TextWrapper):
    """Lines end at a blank or after a sign between the words of a config's path."""

    wordsep_re = re.compile(r"(\s+|(?<=[,=_/])(?=\S)|(?<=\.)(?=[a-z]))")


def wrapped(name: str, width: int = NAME) -> str:
    """A name over several lines, if it is long."""
    return "\n".join(_Wrapper(width).wrap(name) or [name])


def legend_height(names: list[str], styles: list[LineStyle]) -> float:
    """Inches of the legend of these names, for those that have a style of their own."""
    own = [name for name, style in zip(names, styles, strict=True) if style.named]
    return 0.2 * -(-sum(1 + name.count("\n") for name in own) // _columns(own))


def _columns(names: list[str]) -> int:
    return 2 if all(len(name) <= SHORT for name in names) else 1


def legend(figure: Any, axes: Any, others: int = 0) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if others:
        handles, labels = [*handles, Line2D([], [], color=FAINT)], [*labels, f"{others} others"]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels), columnspacing=2.0
    )
