"""What a report consists of: the answer, and sections of text, figures and tables.

A study is written into one `Document`, which the renderers (HTML, Markdown, the terminal) show.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xformer_kit.inspect.style import styled

WIDTH = 4.9  # inches; letters of 10 points are then 10 pixels high on a phone, 390 pixels wide
NONE = "-"  # a cell whose value is not known
ARXIV = re.compile(r"arxiv:\s*(\d{4}\.\d{4,5}|[a-z-]+/\d{7})", re.IGNORECASE)
WEB = re.compile(r"https?://[^\s<>\"']+")


@dataclass(frozen=True)
class Table:
    """Rows of text cells. The first column names a row; the others are numbers, right-aligned,
    except those in `text`.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""
    text: tuple[int, ...] = ()

    def numeric(self, column: int) -> bool:
        return column > 0 and column not in self.text


@dataclass(frozen=True)
class Figure:
    """`paint(figure, axes)` draws it with matplotlib; `panels`: rows and columns of axes."""

    name: str
    title: str
    note: str
    height: float  # inches
    paint: Callable[[Any, Any], None]
    panels: tuple[int, int] = (1, 1)

    @contextmanager
    def drawn(self) -> Iterator[Any]:
        """The matplotlib figure, in the context in which it can be saved: without a screen and
        without matplotlib's global state of figures.
        """
        with styled(self.name):
            from matplotlib.backends.backend_svg import FigureCanvasSVG
            from matplotlib.figure import Figure as Canvas

            figure = Canvas(figsize=(WIDTH, self.height), layout="constrained")
            FigureCanvasSVG(figure)
            self.paint(figure, figure.subplots(*self.panels, sharex=True, sharey=True))
            yield figure


@dataclass(frozen=True)
class Section:
    title: str
    text: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    quotes: list[tuple[str, str]] = field(default_factory=list)  # title, text
    folded: bool = False  # closed until a reader opens it

    def __post_init__(self) -> None:
        """Leaves out tables without rows."""
        self.tables[:] = [table for table in self.tables if table.rows]

    @property
    def empty(self) -> bool:
        return not (self.text or self.figures or self.tables or self.quotes)


@dataclass(frozen=True)
class Document:
    """Sentences are plain text."""

    title: str
    subtitle: str
    partial: str  # runs that are missing; empty if none are
    answer: str
    paper: str
    claim: str  # whether the paper's claim held; empty if nothing is claimed
    claim_outcome: str
    verdicts: list[tuple[str, str]]  # (outcome, sentence) of each variant
    sections: list[Section]

    @property
    def address(self) -> str | None:
        """The paper's page: at arXiv, or an address in its name."""
        return address(self.paper)

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def address(paper: str) -> str | None:
    """Of "Xiong et al., 2020, arXiv:2002.04745" the page at arXiv."""
    if found := ARXIV.search(paper):
        return f"https://arxiv.org/abs/{found[1]}"
    return found[0].rstrip(".,;)") if (found := WEB.search(paper)) else None
