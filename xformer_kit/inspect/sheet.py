"""Pictures of matrices as cells: a row of panels that wraps, or a table of them. Queries are rows,
keys are columns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import WIDTH

COLUMNS = 4  # panels next to each other, without a table
SMALL, LARGE = 0.8, 4.4  # inches of a panel
FEW, CELL = 1.6, 0.4  # inches of one with few cells, and of a cell, at most
LINED = 32  # cells in a row between which there are lines
POINTS = 6.0  # of a letter that can be read
LONG = 18  # letters of a title next to a panel in one line
FILL = "#0072b2"


class Panel(NamedTuple):
    """One matrix, (queries, keys), with names of its rows and columns, or none."""

    title: str
    values: Tensor
    queries: Sequence[str] = ()
    keys: Sequence[str] = ()


class Row(NamedTuple):
    """Panels that belong together."""

    title: str
    panels: list[Panel]


class Scale(NamedTuple):
    """The meaning of the shades. label: None is two shades, of true and false."""

    low: float
    high: float
    label: str | None = None
    root: bool = False  # whether shades are by the square root, so that what is small is seen

    @property
    def mapped(self) -> dict[str, Any]:
        """Colours and their norm, for matplotlib: white to dark, dark to white, or two sides of
        0.
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


def sheet(rows: Sequence[Row], scale: Scale) -> Picture:
    """All panels under one scale, a row of the table for each; of one row alone they wrap, and it
    is the title of the picture.
    """
    table, columns = len(rows) > 1, max(len(row.panels) for row in rows)
    lines = rows
    if not table:
        row, columns = rows[0], min(columns, COLUMNS)
        lines = [
            Row(row.title, row.panels[i : i + columns]) for i in range(0, len(row.panels), columns)
        ]
    cells = max(max(panel.values.shape) for row in rows for panel in row.panels)
    side = min(LARGE, max(SMALL, WIDTH / columns), max(FEW, CELL * cells))
    tall = [_tall(line.panels[0]) for line in lines]
    named = [_differ(lines, y) for y in range(len(lines))]
    size = columns * side + 1.6, sum(side * t for t in tall) + 0.35 * len(lines) + 0.7 * sum(named)

    def draw(figure: Any) -> None:
        figure.set_layout_engine("compressed")
        every = figure.subplots(len(lines), columns, squeeze=False, height_ratios=tall)
        for y in range(len(lines)):
            _line(every[y], lines, y, scale, side, table)
        if not table and rows[0].title:
            figure.suptitle(rows[0].title, fontsize=10.5)
        if scale.label:
            image, shrink = figure.axes[0].images[0], min(0.7, 4.0 / size[1])
            bar = figure.colorbar(image, ax=figure.axes, shrink=shrink, pad=0.02, label=scale.label)
            bar.outline.set_visible(False)

    return Picture(*size, draw)


def _tall(panel: Panel) -> float:
    """Height of a panel relative to its width. Cells are squares, but in one that would be a mere
    strip.
    """
    queries, keys = panel.values.shape
    return min(2.0, max(0.5, queries / keys))


def _differ(lines: Sequence[Row], y: int) -> bool:
    """Whether the keys of a line are others than those of the line below it, and are named
    again.
    """
    if y == len(lines) - 1:
        return True
    mine, below = lines[y].panels[0], lines[y + 1].panels[0]
    return mine.keys != below.keys or mine.values.shape[1] != below.values.shape[1]


def _line(every: Any, lines: Sequence[Row], y: int, scale: Scale, side: float, table: bool) -> None:
    """The panels of one line, and nothing where it has none."""
    line, named = lines[y], _differ(lines, y)
    for x, axes in enumerate(every):
        if x >= len(line.panels):
            axes.remove()
            continue
        panel = line.panels[x]
        _cells(axes, panel, scale)
        ends = x >= len(lines[min(y + 1, len(lines) - 1)].panels)  # nothing stands below it
        _named(axes, panel, side, named or ends, x == 0)
        if not table or y == 0 or _titles(lines[y - 1]) != _titles(line):
            axes.set_title(panel.title, fontsize=9)
        if named or ends:
            axes.set_xlabel("key", fontsize=9)
        if x == 0:
            title = line.title.split() if len(line.title) > LONG else [line.title]
            axes.set_ylabel("\n".join([*title, "query"]) if table else "query", fontsize=9)


def _titles(row: Row) -> list[str]:
    return [panel.title for panel in row.panels]


def _cells(axes: Any, panel: Panel, scale: Scale) -> None:
    """The matrix, with lines between cells where they are few."""
    queries, keys = panel.values.shape
    axes.imshow(panel.values.numpy(), interpolation="nearest", aspect="auto", **scale.mapped)
    axes.set_box_aspect(_tall(panel))
    axes.grid(visible=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    if max(queries, keys) <= LINED:
        axes.set_xticks([k - 0.5 for k in range(1, keys)], minor=True)
        axes.set_yticks([q - 0.5 for q in range(1, queries)], minor=True)
        axes.grid(which="minor", color="#dddddd", linewidth=0.4, visible=True)
        axes.tick_params(which="minor", length=0)


def _named(axes: Any, panel: Panel, side: float, below: bool, left: bool) -> None:
    """Names of tokens where there is room for them, else some numbers."""
    from matplotlib.ticker import MaxNLocator

    queries, keys = panel.values.shape
    upright = any(len(name) > 1 for name in panel.keys)
    for axis, names, count, there in (
        (axes.xaxis, panel.keys, keys, below),
        (axes.yaxis, panel.queries, queries, left),
    ):
        room = side * 72 / keys * (_tall(panel) * keys / queries if axis is axes.yaxis else 1)
        if not there:
            axis.set_ticks([])
        elif names and room >= POINTS:
            style = {
                "fontsize": min(9.0, room),
                "rotation": 90 if upright and axis is axes.xaxis else 0,
            }
            axis.set_ticks(range(count), [visible_token(name) for name in names], **style)
            axis.set_tick_params(length=2)
        else:
            axis.set_major_locator(
                MaxNLocator(max(1, min(5, int(side * 2.5))), integer=True, min_n_ticks=1)
            )
            axis.set_tick_params(labelsize=8)


def visible_token(token: str) -> str:
    """A token as it can be read: blanks are signs, and one without letters is a dot."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "·"
