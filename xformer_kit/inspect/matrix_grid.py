"""Plots of matrices as cells: one row of panels that wraps, or a table of panels. Queries are rows,
keys are columns.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from torch import Tensor

from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import WIDTH

MAX_COLUMNS = 4  # panels next to each other in one row that wraps
MIN_SIDE, MAX_SIDE = 0.8, 4.4  # inches of a panel
FEW_CELLS_SIDE, CELL = 1.6, 0.4  # inches of a panel with few cells, and of a cell, at most
GRID_CELLS = 32  # most cells in a row for which lines are drawn between them
TITLE_WIDTH = 18  # letters in a line of a row's title
MIN_POINTS = 6.0  # smallest readable font size
FILL = "#0072b2"


class Panel(NamedTuple):
    """A matrix (queries, keys) and the names of its rows and columns, if they have names."""

    title: str
    values: Tensor
    queries: Sequence[str] = ()
    keys: Sequence[str] = ()

    @property
    def aspect(self) -> float:
        """Height divided by width. Cells are squares, except in a panel that would be too thin."""
        queries, keys = self.values.shape
        return min(2.0, max(0.5, queries / keys))


class Row(NamedTuple):
    """Panels that belong together."""

    title: str
    panels: list[Panel]

    def same_keys(self, other: "Row") -> bool:
        one, two = self.panels[0], other.panels[0]
        return one.keys == two.keys and one.values.shape[1] == two.values.shape[1]


class Scale(NamedTuple):
    """The colours of values. label: None for boolean values, which have two colours."""

    low: float
    high: float
    label: str | None = None
    root: bool = False  # whether colours follow the square root, which shows small values

    @property
    def colours(self) -> dict[str, Any]:
        """The colormap and its norm: from white to dark, from dark to white if all values are
        negative, or diverging from 0.
        """
        from matplotlib.colors import ListedColormap, Normalize, PowerNorm

        if self.label is None:
            return {"cmap": ListedColormap(["white", FILL]), "norm": Normalize(0, 1)}
        if self.low < 0 < self.high:
            end = max(-self.low, self.high)
            return {"cmap": "RdBu", "norm": Normalize(-end, end)}
        if self.low < 0:
            return {"cmap": "Blues_r", "norm": Normalize(self.low, 0)}
        return {"cmap": "Blues", "norm": PowerNorm(0.5 if self.root else 1, 0, self.high or 1)}


def plot_grid(rows: Sequence[Row], scale: Scale) -> Picture:
    """Plots all panels with one scale. Several rows are a table; a single row wraps, and its title
    is the title of the picture.
    """
    table, columns = len(rows) > 1, max(len(row.panels) for row in rows)
    title = "" if table else rows[0].title
    if not table:
        panels, columns = rows[0].panels, min(columns, MAX_COLUMNS)
        rows = [Row("", panels[i : i + columns]) for i in range(0, len(panels), columns)]
    cells = max(max(panel.values.shape) for row in rows for panel in row.panels)
    side = min(MAX_SIDE, max(MIN_SIDE, WIDTH / columns), max(FEW_CELLS_SIDE, CELL * cells))
    heights = [row.panels[0].aspect for row in rows]
    # the key axis has labels in the last row, and in each row whose keys differ from the next row's
    labelled = [i + 1 == len(rows) or not row.same_keys(rows[i + 1]) for i, row in enumerate(rows)]
    height = side * sum(heights) + 0.35 * len(rows) + 0.7 * sum(labelled)

    def draw(figure: Any) -> None:
        figure.set_layout_engine("compressed")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for y, row in enumerate(rows):
            for axes in grid[y, len(row.panels) :]:
                axes.remove()
            for x, panel in enumerate(row.panels):
                _plot_cells(grid[y, x], panel, scale)
                last = y + 1 == len(rows) or x >= len(rows[y + 1].panels)  # no panel is below
                _label_tokens(grid[y, x], panel, side, labelled[y] or last, x == 0)
                grid[y, x].set_title(panel.title, fontsize=9)
            title_lines = wrap(row.title, TITLE_WIDTH, break_long_words=False) if table else []
            grid[y, 0].set_ylabel("\n".join([*title_lines, "query"]), fontsize=9)
        if title:
            figure.suptitle(title, fontsize=10.5)
        if scale.label:
            image, shrink = figure.axes[0].images[0], min(0.7, 4.0 / height)
            bar = figure.colorbar(image, ax=figure.axes, shrink=shrink, pad=0.02, label=scale.label)
            bar.outline.set_visible(False)

    return Picture(columns * side + 1.6, height, draw)


def _plot_cells(axes: Any, panel: Panel, scale: Scale) -> None:
    """The matrix, with lines between its cells if they are few."""
    queries, keys = panel.values.shape
    axes.imshow(panel.values.numpy(), interpolation="nearest", aspect="auto", **scale.colours)
    axes.set_box_aspect(panel.aspect)
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    if max(queries, keys) <= GRID_CELLS:
        axes.set_xticks([k - 0.5 for k in range(1, keys)], minor=True)
        axes.set_yticks([q - 0.5 for q in range(1, queries)], minor=True)
        axes.grid(which="minor", color="#dddddd", linewidth=0.4, visible=True)
        axes.tick_params(which="minor", length=0)


def _label_tokens(axes: Any, panel: Panel, side: float, below: bool, left: bool) -> None:
    """Labels the keys (if `below`) and the queries (if `left`) with the names of the tokens if
    there is room, else with some numbers.
    """
    from matplotlib.ticker import MaxNLocator

    if below:
        axes.set_xlabel("key", fontsize=9)
    queries, keys = panel.values.shape
    rotation = 90 if any(len(name) > 1 for name in panel.keys) else 0
    for axis, names, count, length, style, shown in (
        (axes.xaxis, panel.keys, keys, side, {"rotation": rotation}, below),
        (axes.yaxis, panel.queries, queries, side * panel.aspect, {"rotation": 0}, left),
    ):
        points = length * 72 / count
        if not shown:
            axis.set_ticks([])
        elif names and points >= MIN_POINTS:
            labels = [visible_token(name) for name in names]
            axis.set_ticks(range(count), labels, fontsize=min(9.0, points), **style)
            axis.set_tick_params(length=2)
        else:
            ticks = max(1, min(5, int(side * 2.5)))
            axis.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))
            axis.set_tick_params(labelsize=8)


def visible_token(token: str) -> str:
    """The token with signs in place of whitespace; a dot if it is empty."""
    return token.translate({32: "␣", 10: "⏎", 9: "⇥"}) or "·"
