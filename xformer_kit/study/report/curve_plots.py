"""Learning curves, and differences from the baseline during training."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from xformer_kit.inspect.style import INK, integer_ticks, loss_limits, marker_places
from xformer_kit.metrics import TRAIN_LOSS, VAL_LOSS, direction
from xformer_kit.study.metric import Metric, metric
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.curves import VariantCurve
from xformer_kit.study.report.document import Figure
from xformer_kit.study.report.labels import LineEnd, label_ends
from xformer_kit.study.report.style import (
    LineStyle,
    legend,
    legend_height,
    variant_styles,
    wrap_name,
)
from xformer_kit.study.statistics import Band

HEIGHT = 3.4  # inches of a row of panels
LOSSES = (VAL_LOSS, TRAIN_LOSS)  # in one figure, whose panels have the same limits
Curves = dict[str, list[VariantCurve]]  # metric -> curves of all variants
X_LABEL = "optimizer step"


def figures(content: Content) -> Iterator[Figure]:
    """Differences from the baseline, and learning curves of each metric that was recorded at more
    than one step.
    """
    yield from _difference_figure(content)
    drawn = {
        name: found
        for name, found in content.curves.items()
        if any(len(curve.band.steps) > 1 or curve.diverged for curve in found)
    }
    losses = {name: drawn[name] for name in LOSSES if name in drawn}
    others = [{name: found} for name, found in drawn.items() if name not in losses]
    for group in filter(None, (*others, losses)):
        yield _curve_figure(content, group)


def _curve_metric(name: str, content: Content) -> Metric:
    """The metric of a curve, whose direction is that of the study if it is unknown."""
    if name == content.metric.name:
        return content.metric
    higher = direction(name)
    return metric(name, content.metric.higher_is_better if higher is None else higher)


def _difference_figure(content: Content) -> Iterator[Figure]:
    """Differences from the baseline during training; none if no variant has two steps."""
    bands = content.difference_curves
    if not any(len(band.steps) > 1 for band in bands):
        return
    measured = _curve_metric(next(iter(content.curves)), content)
    line_styles = variant_styles(content)[1:]

    def draw(figure, panels, wide):
        (axes,) = panels
        axes.axhline(0, color=INK, linewidth=1.2)
        if limits := _draw_bands(axes, bands, line_styles, measured.scale):
            low, high = min(limits[0], 0.0), max(limits[1], 0.0)
            margin = 0.04 * (high - low)  # with which the line of zero is not an axis
            axes.set_ylim(low - margin, high + margin)
        axes.set_xlabel(X_LABEL)
        axes.set_ylabel(f"difference in {measured.title}")
        _name_lines(figure, panels, wide, [_band_ends(bands, line_styles, measured)], line_styles)

    yield Figure(
        "gap",
        f"Differences from {content.baseline.name} during training",
        f"Each variant minus {content.baseline.name} at the same step and seed: the mean over seeds"
        f" with its 95 % CI.{_others_note(line_styles)}",
        HEIGHT,
        draw,
        below=legend_height(line_styles),
    )


def _curve_figure(content: Content, group: Curves) -> Figure:
    """One panel for each metric of a group, with the same limits."""
    line_styles = variant_styles(content)
    metrics = [_curve_metric(name, content) for name in group]
    first, every = metrics[0], [curve for found in group.values() for curve in found]

    def draw(figure, panels, wide):
        limits = []
        for axes, measured, found in zip(panels, metrics, group.values(), strict=True):
            bands = [curve.band for curve in found]
            limits.append(_draw_bands(axes, bands, line_styles, measured.scale))
            axes.set_title(measured.name)
            axes.set_xlabel(X_LABEL)
            axes.set_ylabel(first.title if len(metrics) == 1 else f"loss ({first.unit})")
        if (known := [*filter(None, limits)]) and not first.higher_is_better:
            lows, highs = zip(*known, strict=True)
            panels[0].set_ylim(min(lows), max(highs))
        ends = []
        for axes, measured, found in zip(panels, metrics, group.values(), strict=True):
            for curve, style in zip(found, line_styles, strict=True):
                _draw_diverged(axes, curve, style, measured.scale)
            ends.append(_curve_ends(found, line_styles, measured))
        _name_lines(figure, panels, wide, ends, line_styles)

    note = "Mean over finished runs with its pointwise 95 % CI."
    if len(group) > 1:
        note += " Both panels have the same limits."
    if (averaged := max(curve.averaged for curve in every)) > 1:
        note += f" Each point is the mean of up to {averaged} records."
    if any(curve.diverged for curve in every):
        note += (
            " Thin lines: diverged runs, which end in a white marker with a cross (at the edge if"
            " the value is outside of the axes)."
        )
    names = " and ".join(group)
    return Figure(
        "losses" if VAL_LOSS in group or TRAIN_LOSS in group else f"curve {names}",
        names,
        note + _others_note(line_styles),
        HEIGHT,
        draw,
        panels=len(group),
        below=legend_height(line_styles),
    )


def _others_note(line_styles: list[LineStyle]) -> str:
    """The sentence on the variants without their own style."""
    others = sum(not style.name for style in line_styles)
    return f" Grey: {others} other variant{'s' * (others > 1)}." if others else ""


def _name_lines(
    figure: Any,
    panels: Any,
    wide: bool,
    ends: list[list[LineEnd]],
    line_styles: list[LineStyle],
) -> None:
    """Names the lines of each panel: at their ends if `wide`, else in a legend."""
    if not wide:
        legend(figure, panels, line_styles)
        return
    for axes, of_panel in zip(panels, ends, strict=True):
        label_ends(axes, of_panel)


def _band_ends(bands: list[Band], line_styles: list[LineStyle], measured: Metric) -> list[LineEnd]:
    """The ends of mean curves of the variants with their own style."""
    return [
        LineEnd(band.steps[-1], measured.scale * band.mean[-1], wrap_name(style.name), style)
        for band, style in zip(bands, line_styles, strict=True)
        if band.steps and style.name
    ]


def _curve_ends(
    found: list[VariantCurve], line_styles: list[LineStyle], measured: Metric
) -> list[LineEnd]:
    """The ends of mean curves, and of a diverged run of each variant without a finished one."""
    lost = [
        LineEnd(
            curve.diverged[0][0][-1],
            measured.scale * curve.diverged[0][1][-1],
            wrap_name(f"{style.name} (diverged)"),
            style,
        )
        for curve, style in zip(found, line_styles, strict=True)
        if curve.diverged and style.name and not curve.band.steps
    ]
    return _band_ends([curve.band for curve in found], line_styles, measured) + lost


def _draw_bands(
    axes: Any, bands: list[Band], line_styles: list[LineStyle], scale: float
) -> tuple[float, float] | None:
    """Draws bands; returns limits of the y axis that show them with their intervals."""
    drawn: list[Any] = []
    for index, (band, style) in enumerate(zip(bands, line_styles, strict=True)):
        sides = [scale * np.array(side) for side in (band.mean, band.low, band.high) if side]
        drawn += [(band.steps, side) for side in sides]
        if sides:
            _draw_band(axes, index, band.steps, sides, style)
    axes.set_xlim(left=0)
    integer_ticks(axes.xaxis)
    return loss_limits(drawn)


def _draw_band(
    axes: Any, index: int, steps: list[int], sides: list[np.ndarray], style: LineStyle
) -> None:
    """Draws a mean curve and its interval."""
    mean, *ends = sides
    if not style.name:
        axes.plot(steps, mean, color=style.color, linewidth=style.width, zorder=1)
        return
    axes.plot(
        steps,
        mean,
        zorder=3,
        linewidth=style.width,
        markersize=4 + 1.3 * style.width,
        **style.line_options,
        **{"marker": style.marker, "label": style.label} | marker_places(index, len(steps)),
    )
    if ends:
        axes.fill_between(steps, *ends, color=style.color, alpha=0.13, linewidth=0)


def _draw_diverged(axes: Any, curve: VariantCurve, style: LineStyle, scale: float) -> None:
    """Draws diverged runs as thin lines with a cross at the end, clamped to the limits."""
    low, high = axes.get_ylim()
    label = wrap_name(f"{style.name} (diverged)") if style.name and not curve.band.steps else None
    mark = {"color": style.color, "linestyle": "", "clip_on": False, "zorder": 4}
    for steps, values in curve.diverged:
        axes.plot(steps, [scale * y for y in values], **style.line_options, linewidth=0.9)
        end = min(max(scale * values[-1], low), high)
        axes.plot(
            steps[-1],
            end,
            label=label,
            marker=style.marker,
            markerfacecolor="white",
            markersize=9,
            **mark,
        )
        axes.plot(steps[-1], end, marker="x", markersize=4.5, markeredgewidth=1.3, **mark)
        label = None
    axes.set_ylim(low, high)
