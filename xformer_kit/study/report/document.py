"""The document model of a report: the answer, and sections of text, figures and tables.

One `Document` is built for a study; the renderers (HTML, Markdown, terminal) format it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xformer_kit.inspect.style import plot_style
from xformer_kit.study.numbers import NONE

# Inches. Text of 10 points is then 11 pixels high on a phone of 360 pixels width, and 13 on a page
# of 1,200.
NARROW, WIDE = 4.2, 11.6
MAX_COLUMNS = 4  # of panels of a wide figure
ARXIV = re.compile(r"arxiv:\s*(\d{4}\.\d{4,5}|[a-z-]+/\d{7})", re.IGNORECASE)
WEB = re.compile(r"https?://[^\s<>\"']+")


@dataclass(frozen=True)
class Table:
    """Rows of text cells. The first column has the names of the rows; the others are right-aligned
    numbers, except those in `text`.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""
    text: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is known of what the rows name."""
        return all(cell == NONE for row in self.rows for cell in row[1:] or row)

    def numeric(self, column: int) -> bool:
        """Whether the cells of a column are right-aligned numbers."""
        return column > 0 and column not in self.text


@dataclass(frozen=True)
class Figure:
    """A matplotlib figure in two forms: a wide one, whose panels are in one row, and a narrow one
    for a telephone. draw(figure, panels, wide) fills the axes in `panels`, which share their
    limits.
    """

    name: str
    title: str
    note: str
    height: float  # inches of one row of panels
    draw: Callable[[Any, Any, bool], None]
    panels: int = 1
    columns: int = 1  # of panels of the narrow form
    below: float = 0.0  # inches of the legend below the panels of the narrow form

    @contextmanager
    def drawn(self, wide: bool = False) -> Iterator[Any]:
        """Yields the matplotlib figure, to be saved within the context. Uses neither a screen nor
        pyplot.
        """
        columns = min(self.panels, MAX_COLUMNS) if wide else self.columns
        rows = -(-self.panels // columns)
        size = (WIDE, rows * self.height) if wide else (NARROW, rows * self.height + self.below)
        with plot_style(self.name):
            from matplotlib.backends.backend_svg import FigureCanvasSVG
            from matplotlib.figure import Figure as Canvas

            figure = Canvas(figsize=size, layout="constrained")
            FigureCanvasSVG(figure)
            grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
            for panel in grid:
                panel.tick_params(labelbottom=True)
            for panel in grid[self.panels :]:
                panel.set_visible(False)
            self.draw(figure, grid[: self.panels], wide)
            yield figure


@dataclass(frozen=True)
class Section:
    title: str
    text: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    quotes: list[tuple[str, str]] = field(default_factory=list)  # title, text
    folded: bool = False  # collapsed at first

    def __post_init__(self) -> None:
        """Removes tables that are empty."""
        self.tables[:] = [table for table in self.tables if not table.empty]

    @property
    def empty(self) -> bool:
        return not (self.text or self.figures or self.tables or self.quotes)


@dataclass(frozen=True)
class Document:
    """Sentences are plain text."""

    title: str
    subtitle: str
    hardly_trained: str  # sentence on runs that are; else empty
    partial: str  # sentence on missing runs; empty if there are none
    answer: str
    paper: str
    claim: str  # sentence on whether the paper's claim held; empty without a claim
    claim_outcome: str
    verdicts: list[tuple[str, str]]  # (outcome, sentence) of each variant
    sections: list[Section]

    @property
    def paper_url(self) -> str | None:
        """URL of the paper."""
        return paper_url(self.paper)

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def paper_url(paper: str) -> str | None:
    """URL in a citation: the arXiv page of "Xiong et al., 2020, arXiv:2002.04745", or a URL in the
    text.
    """
    if found := ARXIV.search(paper):
        return f"https://arxiv.org/abs/{found[1]}"
    return found[0].rstrip(".,;)") if (found := WEB.search(paper)) else None
