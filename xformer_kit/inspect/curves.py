"""Curves over the steps of runs: metrics, and the norms of activations and gradients."""

import itertools
import math
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from xformer_kit.config import read_config
from xformer_kit.config.saved.difference import as_literal, differing, flat
from xformer_kit.config.saved.identity import hashed_config
from xformer_kit.config.saved.run_directories import run_directories
from xformer_kit.files.saved_files import read_columns, read_object
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import (
    LINES,
    MARKERS,
    WIDTH,
    divergence_cap,
    integer_ticks,
    line_style,
    loss_limits,
    marker_places,
)
from xformer_kit.metrics import TRAIN_LOSS, VAL_LOSS
from xformer_kit.registry import ConfigError, Node, config_error, suggestion
from xformer_kit.text.command_lines import train
from xformer_kit.text.user_path import user_path

MAX_POINTS = 60  # of a training metric; more are averaged, since each is of one batch
LOSSES = ("loss", "perplexity", "bits_per_byte")  # high at the start
LONG_LABEL = 24  # letters; with a longer label the legend has one column
GREY = "#6f6f6f"
NORMS = {"activation": "root mean square of activations", "gradient": "norm of gradients"}


class StepCurve(NamedTuple):
    label: str
    steps: list[int]
    values: list[float]


def plot_curves(runs: Sequence[str | Path], metrics: Sequence[str] | None = None) -> Picture:
    """Plots one panel per metric with one line per run; runs are labelled with the values in which
    their configs differ. Of a single run, train/loss and val/loss share a panel.

    runs: directories; that of a sweep stands for its runs. metrics: columns of metrics.csv, such as
    `val/accuracy`; None for the losses, or the first metric if there are none. Training metrics are
    averaged over neighbouring records. A note below the panels names the runs without a row or a
    finite value of these metrics, those that diverged, with the step (a loss above `divergence_cap`
    is outside the axis), and that runs with one config read different data. Raises ConfigError for
    a directory that is not a run, if no run has values yet, and for a metric that no run has.
    """
    paths = run_directories(runs)
    labels = _labels(paths)
    curves = {
        label: _read_curves(path / "metrics.csv") for label, path in zip(labels, paths, strict=True)
    }
    known = list(dict.fromkeys(itertools.chain(*curves.values())))
    panels: dict[str, list[StepCurve]] = {
        metric: [
            _averaged(found[metric]._replace(label=label), metric)
            for label, found in curves.items()
            if metric in found
        ]
        for metric in _select_metrics(metrics, known, paths[0])
    }
    finite = {
        curve.label
        for curve in itertools.chain(*panels.values())
        if any(map(math.isfinite, curve.values))
    }
    missing = [label for label in labels if curves[label] and label not in finite]
    title = ""
    if len(labels) == 1 and len(panels) > 1:
        title, panels = labels[0], _by_quantity(panels)
        labels, finite = list(known), set(known)
    styles = {label: line_style(i) for i, label in enumerate(labels) if label in finite}
    lines = [
        _note("Runs with no row yet:", [label for label, found in curves.items() if not found]),
        _note(f"Runs with no finite value of {' or '.join(panels)}:", missing),
        *itertools.starmap(_divergence_note, panels.items()),
        _data_note(paths),
    ]
    return _plot_panels(panels, styles, zoom=True, note="\n".join(filter(None, lines)), title=title)


def plot_norms(run: str | Path) -> Picture:
    """Plots the norms of activations and gradients of each layer, of a run with the callback
    `norms`.

    Upper panel: root mean square of the residual stream after each layer, in training. Lower panel:
    norm of the gradient of each layer's parameters, before clipping. Deeper layers are darker.
    Raises ConfigError for a run without norms.
    """
    path = user_path(run)
    read_config(path)
    file = path / "norms.csv"
    curves = _read_curves(file)
    if not curves:
        fix = f"A row each 50 steps is recorded on request: {train('callbacks.norms.every=50')}"
        raise config_error(run, "has no row in norms.csv", fix=fix)
    panels: dict[str, list[StepCurve]] = {}
    for column, curve in curves.items():
        kind, _, label = column.partition("/")
        panels.setdefault(NORMS.get(kind, kind), []).append(curve._replace(label=label))
    labels = dict.fromkeys(curve.label for curve in itertools.chain(*panels.values()))
    return _plot_panels(panels, _layer_styles(list(labels)), log=True)


def _select_metrics(wanted: Sequence[str] | None, known: Sequence[str], run: Path) -> Sequence[str]:
    """The wanted metrics, else the losses, else the first one. Raises ConfigError for an unknown
    metric, and if none is known.
    """
    if not known:
        raise config_error(
            run,
            "has no figures yet; its metrics.csv has no row",
            fix="Wait for its first if it still trains, or name another run.",
        )
    for metric in wanted or ():
        if metric not in known:
            raise config_error(
                "metric", f"none of the runs has '{metric}'", fix=suggestion(metric, known)
            )
    return wanted or [name for name in (TRAIN_LOSS, VAL_LOSS) if name in known] or known[:1]


def _read_curves(path: Path) -> dict[str, StepCurve]:
    """A curve for each column of a csv file that has values; none if there is no file. Raises
    ConfigError for a damaged file.
    """
    columns = read_columns(path) if path.exists() else {}
    return {name: StepCurve(name, *column) for name, column in columns.items() if column[0]}


def _labels(paths: Sequence[Path]) -> list[str]:
    """The values of each run's config that differ from the other runs'; if these labels are equal,
    empty or too long, the directories, relative to one that has all of them.
    """
    configs = _configs(paths)
    differences = differing(configs)
    labels = [
        ", ".join(
            f"{key.removesuffix('.name')}={as_literal(config[key])}"
            for key in differences
            if key in config
        )
        for config in configs
    ]
    usable = len(set(labels)) == len(labels) and all(0 < len(label) <= 60 for label in labels)
    absolute = [path.absolute() for path in paths]
    here = os.path.commonpath([path.parent for path in absolute])
    return labels if usable else [str(path.relative_to(here)) for path in absolute]


def _configs(paths: Sequence[Path]) -> list[Node]:
    """The flat config of each run, without what does not affect the results."""
    return [dict(flat(hashed_config(read_config(path)))) for path in paths]


def _data_note(paths: Sequence[Path]) -> str:
    """A note if the runs read different data, by their summary.json, which their configs do not
    tell; else empty.
    """
    recorded = set()
    for path in paths:
        with suppress(FileNotFoundError, ConfigError):  # not finished
            recorded.add(read_object(path / "summary.json", {}).get("data_fingerprint"))
    nodes = {key.partition(".")[0] for key in differing(_configs(paths))}
    differs_unseen = len(recorded - {None}) > 1 and not nodes & {"data", "tokenizer"}
    return "Not all of these runs read the same data." if differs_unseen else ""


def _by_quantity(panels: Mapping[str, list[StepCurve]]) -> dict[str, list[StepCurve]]:
    """The curves of one run, those of train/loss and val/loss in one panel, `loss`."""
    found: dict[str, list[StepCurve]] = {}
    for metric, curves in panels.items():
        same = found.setdefault(metric.rpartition("/")[2], [])
        same += [curve._replace(label=metric) for curve in curves]
    return found


def _divergence_note(metric: str, curves: Sequence[StepCurve]) -> str:
    """A note on the lines that are not finite, or outside the axis, from some step on; empty if
    there are none.
    """
    cap = _cap(metric, curves)
    steps = {
        curve.label: next(
            (step for step, y in zip(curve.steps, curve.values, strict=True) if not y <= cap), None
        )
        for curve in curves
        if any(map(math.isfinite, curve.values))
    }
    found = [f"{label} (step {step:,})" for label, step in steps.items() if step is not None]
    return _note(f"{metric} diverged:", found)


def _cap(metric: str, curves: Sequence[StepCurve]) -> float:
    """The largest value on the axis of a metric: finite only for those that start high."""
    if not metric.endswith(LOSSES):
        return sys.float_info.max
    return min(sys.float_info.max, divergence_cap(curve.values for curve in curves))


def _note(start: str, labels: Sequence[str]) -> str:
    """A wrapped list of runs; empty if there are none."""
    if not labels:
        return ""
    text = f"{start} {'; '.join(labels)}"
    return textwrap.fill(text, 90, break_on_hyphens=False, break_long_words=False)


def _averaged(curve: StepCurve, metric: str) -> StepCurve:
    """A training metric as at most MAX_POINTS means of equally many neighbours, and of the fewer
    that remain, at the last of their steps; another metric as it is.
    """
    if not metric.startswith("train/"):
        return curve
    count = math.ceil(len(curve.steps) / MAX_POINTS)
    starts = range(0, len(curve.steps), count)
    groups = [curve.values[start : start + count] for start in starts]
    means = [sum(group) / len(group) for group in groups]
    return StepCurve(curve.label, [curve.steps[start:][:count][-1] for start in starts], means)


def _layer_styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Styles by label: deeper layers are darker and have different markers; others are grey."""
    from matplotlib import colormaps

    layers = [label for label in labels if label[-1].isdigit()]
    others = [label for label in labels if label not in layers]
    shades, last = colormaps["viridis_r"], len(layers) - 1
    return {
        label: {
            "color": shades(1 - 0.88 * (last - i) / max(1, last)),
            "marker": MARKERS[i % len(MARKERS)],
            "linewidth": 1.3,
        }
        for i, label in enumerate(layers)
    } | {
        label: {"color": GREY, "linestyle": LINES[1 + i % (len(LINES) - 1)]}
        for i, label in enumerate(others)
    }


def _plot_panels(
    panels: Mapping[str, list[StepCurve]],
    styles: Node,
    log: bool = False,
    zoom: bool = False,
    note: str = "",
    title: str = "",
) -> Picture:
    """Plots one panel per quantity, below each other, with one legend. styles: of labels; curves
    without a style are not drawn. log: logarithmic values, if all are positive. zoom: limits the
    axis to the later values, see `loss_limits`.
    """
    columns = 1 if max(map(len, styles), default=0) > LONG_LABEL else 3
    legend_rows = math.ceil(len(styles) / columns) if len(styles) > 1 else 0

    def draw(figure: Any) -> None:
        all_axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        handles: dict[str, Any] = {}
        for axes, (quantity, curves) in zip(all_axes, panels.items(), strict=True):
            for i, curve in enumerate(curve for curve in curves if curve.label in styles):
                style = styles[curve.label] | marker_places(i, len(curve.steps))
                (line,) = axes.plot(curve.steps, curve.values, label=curve.label, **style)
                handles.setdefault(curve.label, line)
            if log and all(value > 0 for curve in curves for value in curve.values):
                _set_log_scale(axes)
            lines = ((curve.steps, curve.values) for curve in curves)
            if zoom and (limits := loss_limits(lines, _cap(quantity, curves))):
                axes.set_ylim(*limits)
            axes.set_ylabel(quantity)
        all_axes[-1].set_xlabel("optimizer step")
        integer_ticks(all_axes[-1].xaxis)
        all_axes[0].set_title(title or "".join(styles) * (len(styles) < 2))
        if len(styles) > 1:
            shown = [label for label in styles if label in handles]
            entries = [handles[label] for label in shown]
            figure.legend(entries, shown, loc="outside lower center", ncols=columns, fontsize=9)
        if note:
            _add_note(figure, note)

    return Picture(WIDTH, 2.9 * len(panels) + 0.2 * legend_rows + 0.3, draw, note)


def _set_log_scale(axes: Any) -> None:
    """A logarithmic scale that has several labels even if it spans few powers of ten."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if 10 * low <= high < 1000 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    minor = "{:g}" if high < 10 * low else ""
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(lambda y, _: minor.format(y))


def _add_note(figure: Any, note: str) -> None:
    """Adds a note below the figure; the saved picture includes it."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it would place the legend at the bottom of the note
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    figure.text(0.01, 0.0, note, va="top", fontsize=8.5)
