"""Figures of a ladder: loss against size for each number of tokens per parameter, and loss against
FLOPs.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Figure
from xformer_kit.study.report.laws import Laws, VariantLaw
from xformer_kit.study.report.style import (
    LineStyle,
    legend,
    legend_height,
    line_plot,
    variant_styles,
)

COLUMNS = 2  # of panels
POINTS = 60  # of a curve

StyledLaws = list[tuple[VariantLaw, LineStyle]]


def figures(content: Content) -> Iterator[Figure]:
    """The figures of the laws; none if no law was fitted."""
    found = content.laws
    if found is not None and any(one.law for one in found.variants):
        styled = [
            (one, style._replace(name=style.name and one.name))
            for one, style in zip(found.variants, variant_styles(content), strict=True)
        ]
        yield _size_figure(found, styled)
        yield _compute_figure(found, styled)


def _size_figure(found: Laws, styled: StyledLaws) -> Figure:
    """One panel for each number of tokens per parameter."""
    count = len(found.multiples)
    columns = min(COLUMNS, count)
    line_styles = [style for _, style in styled]

    def draw(figure, panels, wide):
        for panel, multiple in zip(panels, found.multiples, strict=True):
            for one, style in styled:
                _draw_means(panel, one, multiple, found.metric.scale, style)
                _draw_law(panel, one, multiple, found, style)
            panel.set_title(f"{multiple:g} tokens per parameter")
            _set_log_axis(panel)
            panel.set_xlabel("parameters")
        panels[0].set_ylabel(found.metric.title)
        legend(figure, panels, line_styles, wide)

    return Figure(
        "laws",
        f"{found.metric.name} against parameters",
        "Markers: mean over the seeds of a rung with its 95 % CI. Lines: the fitted law. Thin lines"
        f" with the 95 % CI of the law: extrapolation to {found.ahead:g} times the largest size.",
        2.9,
        draw,
        panels=count,
        columns=columns,
        below=legend_height(line_styles),
    )


def _draw_means(
    panel: Any, one: VariantLaw, multiple: float, scale: float, style: LineStyle
) -> None:
    """Draws the mean of each rung with its interval."""
    label = style.label
    for step in one.steps:
        found = step.interval
        if step.multiple == multiple and found.mean is not None:
            error = None if found.high is None else scale * (found.high - found.mean)
            panel.errorbar(
                step.parameters,
                scale * found.mean,
                **style.errorbar_options,
                yerr=error,
                label=label,
                capsize=2,
                zorder=3,
            )
            label = None


def _draw_law(panel: Any, one: VariantLaw, multiple: float, found: Laws, style: LineStyle) -> None:
    """Draws the law up to the largest size, and its extrapolation as a thin line with a band."""
    law, scale = one.law, found.metric.scale
    sizes = [step.parameters for step in one.steps]
    drawn = any(s.multiple == multiple and s.interval.mean is not None for s in one.steps)
    if law is None or not drawn:
        return
    inside = np.geomspace(min(sizes), max(sizes), POINTS)
    panel.plot(
        inside, [scale * law.loss(n, multiple * n) for n in inside], **style.line_options, zorder=2
    )
    if law.at_bounds:
        return
    outside = np.geomspace(max(sizes), found.parameters, POINTS)
    # (loss, low, high) of each size
    predicted = scale * np.array([law.predict(n, multiple * n) for n in outside])
    panel.plot(outside, predicted[:, 0], **style.line_options, linewidth=0.8, zorder=2)
    if style.name:
        panel.fill_between(outside, *predicted[:, 1:].T, color=style.color, alpha=0.13, linewidth=0)


def _set_log_axis(panel: Any) -> None:
    """Makes the x axis logarithmic, with ticks in compact units."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(
        LogLocator(base=10, subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0), numticks=12)
    )
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _compute_figure(found: Laws, styled: StyledLaws) -> Figure:
    """All runs against their FLOPs; for a law of both axes also its lowest loss at each number of
    FLOPs.
    """
    scale, line_styles = found.metric.scale, [style for _, style in styled]

    def draw(axes):
        for one, style in styled:
            pairs = [(step.flops, scale * value) for step in one.steps for value in step.values]
            if pairs:
                size = 5.5 if style.name else 3
                axes.plot(
                    *zip(*pairs, strict=True),
                    style.marker,
                    label=style.label,
                    color=style.color,
                    alpha=0.75,
                    markersize=size,
                )
            if one.optimum and one.determined:
                flops = [step.flops for step in one.steps]
                x = np.geomspace(min(flops), max(flops), POINTS)
                per = one.flops_per_parameter_token
                best = [scale * one.law.optimal(c, per).loss for c in x]
                axes.plot(x, best, **style.line_options, zorder=2)
        _set_log_axis(axes)

    note = "Each marker is a run."
    if any(one.optimum for one in found.variants):
        note += (
            " Lines: compute-optimal loss of the law (best split of the FLOPs into size and"
            " tokens)."
        )
    return line_plot(
        "laws compute",
        f"{found.metric.name} against compute",
        note,
        draw,
        "training FLOPs",
        found.metric.title,
        line_styles,
    )
