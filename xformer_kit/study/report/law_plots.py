"""The figures of a ladder: the loss against size for each number of tokens per parameter, and
against compute.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Figure
from xformer_kit.study.report.laws import Laws, VariantLaw
from xformer_kit.study.report.numbers import exact
from xformer_kit.study.report.style import LineStyle, label_axes, legend, legend_height, styles

WIDE = 2  # panels in a row
POINTS = 60  # of a curve

Styled = list[tuple[VariantLaw, LineStyle]]


def figures(content: Content) -> Iterator[Figure]:
    found = content.laws
    if found is not None and any(one.law for one in found.each):
        styled = [
            (one, style._replace(name=style.name and one.name))
            for one, style in zip(found.each, styles(content), strict=True)
        ]
        look = [style for _, style in styled]
        yield _sizes(found, styled, look)
        yield _compute(found, styled, look)


def _sizes(found: Laws, styled: Styled, look: list[LineStyle]) -> Figure:
    """A panel for each number of tokens per parameter."""
    count = len(found.multiples)
    columns = min(WIDE, count)
    rows = -(-count // columns)

    def paint(figure: Any, axes: Any) -> None:
        panels = np.atleast_1d(axes).ravel()
        for place, (panel, multiple) in enumerate(zip(panels, found.multiples, strict=False)):
            for one, style in styled:
                _means(panel, one, multiple, found.metric.scale, style)
                _curve(panel, one, multiple, found, style)
            panel.set_title(f"{multiple:g} tokens per parameter")
            _logarithmic(panel)
            if place + columns >= count:  # no panel is below it
                panel.set_xlabel("parameters")
                panel.tick_params(labelbottom=True)
        for panel in panels[count:]:
            panel.set_visible(False)
        for panel in panels[::columns]:
            panel.set_ylabel(found.metric.title)
        legend(figure, panels[0], look)

    return Figure(
        "laws",
        f"{found.metric.name} against parameters",
        "Signs: the mean of a rung's seeds with its 95 % interval. Lines: the fitted law; beyond"
        " the largest size, thin and with the 95 % interval of the law, it is extrapolated, up to"
        f" {found.ahead:g} times.",
        0.9 + 2.3 * rows + legend_height(look),
        paint,
        (rows, columns),
    )


def _means(panel: Any, one: VariantLaw, multiple: float, scale: float, style: LineStyle) -> None:
    label = style.label
    for step in one.steps:
        found = step.interval
        if step.multiple == multiple and found.mean is not None:
            error = None if found.high is None else scale * (found.high - found.mean)
            panel.errorbar(
                step.parameters,
                scale * found.mean,
                **style.sign,
                yerr=error,
                label=label,
                capsize=2,
                zorder=3,
            )
            label = None


def _curve(panel: Any, one: VariantLaw, multiple: float, found: Laws, style: LineStyle) -> None:
    law, scale = one.law, found.metric.scale
    sizes = [step.parameters for step in one.steps]
    drawn = any(s.multiple == multiple and s.interval.mean is not None for s in one.steps)
    if law is None or not drawn:
        return
    inside = np.geomspace(min(sizes), max(sizes), POINTS)
    panel.plot(
        inside, [scale * law.loss(n, multiple * n) for n in inside], **style.joined, zorder=2
    )
    if law.at_bounds:
        return
    beyond = np.geomspace(max(sizes), found.parameters, POINTS)
    ahead = scale * np.array([law.predict(n, multiple * n) for n in beyond])  # loss, low, high
    panel.plot(beyond, ahead[:, 0], **style.joined, linewidth=0.8, zorder=2)
    if style.name:
        panel.fill_between(beyond, *ahead[:, 1:].T, color=style.color, alpha=0.13, linewidth=0)


def _logarithmic(panel: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(
        LogLocator(base=10, subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0), numticks=12)
    )
    panel.xaxis.set_major_formatter(lambda x, _: exact(x))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _compute(found: Laws, styled: Styled, look: list[LineStyle]) -> Figure:
    """All runs against their FLOPs, and of a law in both sizes the lowest loss for each number of
    FLOPs.
    """
    scale = found.metric.scale

    def paint(figure: Any, axes: Any) -> None:
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
            if one.best and one.predicts:
                flops = [step.flops for step in one.steps]
                at = np.geomspace(min(flops), max(flops), POINTS)
                best = [scale * one.law.optimal(c, one.per).loss for c in at]
                axes.plot(at, best, **style.joined, zorder=2)
        _logarithmic(axes)
        label_axes(axes, "training FLOPs", found.metric.title)
        legend(figure, axes, look)

    note = "Each sign is a run."
    if any(one.best for one in found.each):
        note += (
            " Lines: the lowest loss of the law for so much compute, with the best split"
            " into size and tokens."
        )
    return Figure(
        "laws compute",
        f"{found.metric.name} against compute",
        note,
        3.3 + legend_height(look),
        paint,
    )
