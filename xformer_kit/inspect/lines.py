"""Curves over the steps of runs: metrics, and the sizes of activations and gradients."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xformer_kit.config import read_config
from xformer_kit.config.difference import as_literal, differing, flat
from xformer_kit.config.identity import hashed_config
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import LINES, MARKERS, WIDTH, bounds, line_style, markers, whole
from xformer_kit.registry import Node, config_error, suggestion
from xformer_kit.registry.saved_files import read_columns

POINTS = 60  # of a loss in training: of more, neighbours are averaged, for each is of one batch
NAMED = 12  # runs in a note
GREY = "#6f6f6f"
NORMS = {"activation": "root mean square of activations", "gradient": "norm of gradients"}
Columns = dict[str, tuple[list[int], list[float]]]  # name -> (steps, values)


class Line(NamedTuple):
    name: str
    steps: list[int]
    values: list[float]


def plot_curves(runs: Sequence[str | Path], metrics: Sequence[str] | None = None) -> Picture:
    """Curves of runs: a panel for each metric, a line for each run, named by where its config
    differs from the others'.

    runs: directories. metrics: columns of their metrics.csv, such as `val/accuracy`; None is the
    losses. The loss in training is averaged over neighbouring records. Runs without a finite figure
    of these metrics are named below the picture. Raises ConfigError for a directory that is no run
    or has no figures yet, and for a metric that none of them has.
    """
    paths = list(dict.fromkeys(Path(run).expanduser() for run in runs))
    if not paths:
        raise config_error(
            "runs",
            "must name one run's directory at least",
            got="none",
            fix="Try outputs/decoder/*.",
        )
    names = _names(paths)
    found = {name: _columns(path / "metrics.csv") for name, path in zip(names, paths, strict=True)}
    chosen = _metrics(metrics, [*dict.fromkeys(itertools.chain(*found.values()))], paths[0])
    panels = {
        metric: [
            Line(name, *_averaged(*columns[metric], metric))
            for name, columns in found.items()
            if metric in columns
        ]
        for metric in chosen
    }
    lines = itertools.chain(*panels.values())
    drawn = {line.name for line in lines if any(map(math.isfinite, line.values))}
    looks = {name: line_style(i) for i, name in enumerate(names) if name in drawn}
    note = _missing([name for name in names if name not in drawn], chosen)
    return _drawn(panels, looks, zoomed=True, note=note)


def _metrics(wanted: Sequence[str] | None, known: Sequence[str], run: Path) -> list[str]:
    """The metrics that are drawn: those that are wanted, or the losses, or the first. Raises
    ConfigError for one that is not known, and if none is.
    """
    if not known:
        raise config_error(
            run,
            "has no figures yet; its metrics.csv has no row",
            fix="Wait for its first, or name another run.",
        )
    for metric in wanted or ():
        if metric not in known:
            raise config_error(
                "metric", f"none of the runs has '{metric}'", fix=suggestion(metric, known)
            )
    losses = [name for name in ("train/loss", "val/loss") if name in known]
    return list(wanted or losses or known[:1])


def plot_norms(run: str | Path) -> Picture:
    """The sizes of activations and gradients of each layer, along a run with the callback `norms`.

    Above: the root mean square of the residual stream after each layer, in training. Below: the
    norm of the gradient of each layer's parameters, before clipping. Layers are darker the deeper
    they are. Raises ConfigError for a run without norms.
    """
    path = Path(run).expanduser()
    read_config(path)
    found = _columns(path / "norms.csv")
    if not found:
        raise config_error(
            run,
            "has no norms.csv",
            fix="Norms are noted on request: python train.py callbacks.norms.every=50.",
        )
    panels: dict[str, list[Line]] = {}
    for column, (steps, values) in found.items():
        kind, _, name = column.partition("/")
        panels.setdefault(NORMS.get(kind, kind), []).append(Line(name, steps, values))
    names = list(dict.fromkeys(line.name for lines in panels.values() for line in lines))
    return _drawn(panels, _shaded(names), log=True)


# What a run wrote down.


def _columns(path: Path) -> Columns:
    """Every column that has values, over the steps of a run. Raises ConfigError for a damaged
    file.
    """
    try:
        found = read_columns(path)
    except FileNotFoundError:
        return {}
    return {name: column for name, column in found.items() if column[0]}


def _names(paths: Sequence[Path]) -> list[str]:
    """Of each run, where its config differs from the others'; its directory, where that tells no
    two apart.
    """
    configs = [dict(flat(hashed_config(read_config(path)))) for path in paths]
    where = differing(configs)
    names = [
        ", ".join(
            f"{key.removesuffix('.name')}={as_literal(config[key])}"
            for key in where
            if key in config
        )
        for config in configs
    ]
    apart = len(set(names)) == len(names) and all(0 < len(name) <= 60 for name in names)
    return names if apart else [str(path) for path in paths]


def _missing(names: Sequence[str], metrics: Sequence[str]) -> str:
    """A note on the runs that have no line."""
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    text = f"Runs without a figure of {' or '.join(metrics)}: {'; '.join(names[:NAMED])}{more}"
    return textwrap.fill(text, 90, break_on_hyphens=False, break_long_words=False) if names else ""


def _averaged(steps: list[int], values: list[float], name: str) -> tuple[list[int], list[float]]:
    """The means of some neighbours each, at the last of their steps."""
    count = -(-len(steps) // POINTS) if name.startswith("train/") else 1
    ends = range(count, len(steps) + 1, count)
    return [steps[end - 1] for end in ends], [
        sum(values[end - count : end]) / count for end in ends
    ]


# How it is drawn.


def _shaded(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Layers are darker the deeper they are, with distinct markers; all else is grey."""
    from matplotlib import colormaps

    layers, shades = [name for name in names if name[-1].isdigit()], colormaps["viridis_r"]
    last = len(layers) - 1
    found = {
        name: {
            "color": shades(1 - 0.88 * (last - i) / max(1, last)),
            "marker": MARKERS[i % len(MARKERS)],
            "linewidth": 1.3,
        }
        for i, name in enumerate(layers)
    }
    others = [name for name in names if name not in found]
    return found | {
        name: {"color": GREY, "linestyle": LINES[1 + i % (len(LINES) - 1)]}
        for i, name in enumerate(others)
    }


def _drawn(
    panels: Mapping[str, list[Line]],
    looks: Node,
    log: bool = False,
    zoomed: bool = False,
    note: str = "",
) -> Picture:
    def draw(figure: Any) -> None:
        every = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            for place, line in enumerate(line for line in lines if line.name in looks):
                style = looks[line.name] | markers(place, len(line.steps))
                axes.plot(line.steps, line.values, label=line.name, **style)
            if log and all(value > 0 for line in lines for value in line.values):
                _logarithmic(axes)
            if zoomed and (limits := bounds((line.steps, line.values) for line in lines)):
                axes.set_ylim(*limits)
            axes.set_ylabel(title)
        every[-1].set_xlabel("optimizer step")
        whole(every[-1].xaxis)
        _legend(figure, every, list(looks))
        if note:
            _noted(figure, note)

    long = max(map(len, looks), default=0) > 24
    rows = -(-len(looks) // (1 if long else 3)) if len(looks) > 1 else 0
    return Picture(WIDTH, 2.9 * len(panels) + 0.2 * rows + 0.3, draw)


def _logarithmic(axes: Any) -> None:
    """A logarithmic scale with several labels also where it spans few powers of ten."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if 10 * low <= high < 1000 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    within = "{:g}" if high < 10 * low else ""
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: within.format(y))


def _legend(figure: Any, every: Sequence[Any], names: list[str]) -> None:
    if len(names) < 2:
        every[0].set_title("".join(names))
        return
    # of several panels the handles of the first one
    handles = {
        label: handle
        for axes in reversed(every)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    shown = [name for name in names if name in handles]
    columns = 1 if max(map(len, shown)) > 24 else 3
    figure.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
    )


def _noted(figure: Any, note: str) -> None:
    """A note below all that the figure has; a figure is saved with all its text."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it would place the legend at the bottom of the note
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    figure.text(0.01, 0.0, note, va="top", fontsize=8.5)
