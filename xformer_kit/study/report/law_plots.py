"""The pictures of a ladder: the loss against size for each number of tokens per parameter, and
against compute.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from xformer_kit.inspect.style import FAINT
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.laws import Climb, Laws
from xformer_kit.study.report.look import Look, Picture, canvas, legend, lines, wrapped
from xformer_kit.study.report.said import exact
from xformer_kit.study.report.tables import unit

WIDE = 2  # panels in a row
POINTS = 60  # of a curve


def pictures(content: Content, look: list[Look]) -> Iterator[Picture]:
    if (found := content.laws) is not None and any(climb.law for climb in found.climbs):
        yield _sizes(content, found, look)
        yield _compute(content, found, look)


def _legend(found: Laws, look: list[Look]) -> float:
    """Inches of the legend."""
    return 0.2 * lines(
        [wrapped(climb.name) for climb, its in zip(found.climbs, look, strict=True) if its.named]
    )


def _sizes(content: Content, found: Laws, look: list[Look]) -> Picture:
    """A panel for each number of tokens per parameter."""
    columns = min(WIDE, len(found.multiples))
    rows = -(-len(found.multiples) // columns)

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(0.9 + 2.3 * rows + _legend(found, look), "laws", (rows, columns)) as (
            figure,
            axes,
        ):
            panels = np.atleast_1d(axes).ravel()
            for place, (panel, multiple) in enumerate(zip(panels, found.multiples, strict=False)):
                for climb, its in zip(found.climbs, look, strict=True):
                    _curve(panel, climb, multiple, found, content, its)
                panel.set_title(f"{multiple:g} tokens per parameter")
                _logarithmic(panel)
                if place + columns >= len(found.multiples):  # no panel is below it
                    panel.set_xlabel("parameters")
                    panel.tick_params(labelbottom=True)
            for panel in panels[len(found.multiples) :]:
                panel.set_visible(False)
            for panel in panels[::columns]:
                panel.set_ylabel(unit(content.metric))
            legend(figure, panels[0], sum(not its.named for its in look))
            return done(figure)

    note = (
        "Signs: the mean of a rung's seeds with its 95 % interval. Lines: the fitted law; beyond"
        " the largest size, thin and with the 95 % interval of the law, it is extrapolated, up to"
        f" {found.ahead:g} times."
    )
    return Picture("laws", f"{content.metric.name} against parameters", note, draw)


def _curve(
    panel: Any, climb: Climb, multiple: float, found: Laws, content: Content, its: Look
) -> None:
    scale = content.metric.scale
    steps = [
        step for step in climb.steps if step.multiple == multiple and step.interval.mean is not None
    ]
    for i, step in enumerate(steps):
        mean, high = step.interval.mean, step.interval.high
        reach = None if high is None else scale * (high - mean)
        label = wrapped(climb.name) if i == 0 and its.named else None
        style = {
            "fmt": its.marker,
            "color": its.color,
            "capsize": 2,
            "elinewidth": 1.0,
            "label": label,
            "zorder": 3,
        }
        panel.errorbar(step.parameters, scale * mean, yerr=reach, **style)
    if climb.law is None or not steps:
        return
    sizes = [step.parameters for step in climb.steps]
    inside, beyond = (
        np.geomspace(min(sizes), max(sizes), POINTS),
        np.geomspace(max(sizes), found.parameters, POINTS),
    )
    fitted = [scale * climb.law.loss(n, multiple * n) for n in inside]
    panel.plot(inside, fitted, color=its.color, linestyle=its.line, zorder=2)
    if climb.law.at_bounds:
        return
    ahead = [climb.law.predict(n, multiple * n) for n in beyond]
    panel.plot(
        beyond,
        [scale * p.loss for p in ahead],
        color=its.color,
        linestyle=its.line,
        linewidth=0.8,
        zorder=2,
    )
    if its.named:
        low, top = ([scale * getattr(p, side) for p in ahead] for side in ("low", "high"))
        panel.fill_between(beyond, low, top, color=its.color, alpha=0.13, linewidth=0)


def _logarithmic(panel: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(
        LogLocator(base=10, subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0), numticks=12)
    )
    panel.xaxis.set_major_formatter(lambda x, _: exact(x))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _compute(content: Content, found: Laws, look: list[Look]) -> Picture:
    """All runs against their FLOPs, and of a law in both sizes the lowest loss for each number of
    FLOPs.
    """
    scale = content.metric.scale

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(3.3 + _legend(found, look), "laws compute") as (figure, axes):
            for climb, its in zip(found.climbs, look, strict=True):
                pairs = [
                    (step.flops, scale * value) for step in climb.steps for value in step.values
                ]
                if pairs:
                    label, size = (wrapped(climb.name), 5.5) if its.named else (None, 3)
                    axes.plot(
                        *zip(*pairs, strict=True),
                        its.marker,
                        color=its.color,
                        label=label,
                        alpha=0.75,
                        markersize=size,
                    )
                _front(axes, climb, its, scale)
            _logarithmic(axes)
            axes.set_xlabel("training FLOPs")
            axes.set_ylabel(unit(content.metric))
            legend(figure, axes, sum(its.color == FAINT for its in look))
            return done(figure)

    note = "Each sign is a run."
    if any(climb.best for climb in found.climbs):
        note += (
            " Lines: the lowest loss that the law knows for so much compute, with the best split"
            " into size and tokens."
        )
    return Picture("laws compute", f"{content.metric.name} against compute", note, draw)


def _front(axes: Any, climb: Climb, its: Look, scale: float) -> None:
    if climb.best is None or climb.law is None or climb.law.at_bounds:
        return
    flops = [step.flops for step in climb.steps]
    per = sorted(step.flops / (step.parameters * step.tokens) for step in climb.steps)[
        len(flops) // 2
    ]
    at = np.geomspace(min(flops), max(flops), POINTS)
    axes.plot(
        at,
        [scale * climb.law.optimal(c, per).loss for c in at],
        color=its.color,
        linestyle=its.line,
        zorder=2,
    )
