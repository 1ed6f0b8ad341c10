"""Figures of a report: differences from the baseline, the history of a search, and the metric
against cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

from xformer_kit.inspect.style import COLOURS, FAINT, INK, integer_ticks
from xformer_kit.study.numbers import NONE
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Figure
from xformer_kit.study.report.style import (
    MAX_STYLES,
    LineStyle,
    legend_height,
    line_plot,
    plot_name,
    variant_styles,
    wrap_name,
)
from xformer_kit.study.report.tables import OUTCOMES
from xformer_kit.study.statistics import Interval
from xformer_kit.study.variants import VariantResult


def forest(content: Content) -> Iterator[Figure]:
    """Forest plot: differences with confidence intervals, the zero line, and the margin; of several
    sizes, a panel for each.
    """
    sizes = {size.name: size.variants for size in content.sizes} or {"": content.variants}
    variants = content.variants[1:]
    if all(variant.verdict.difference.mean is None for variant in variants):
        return
    order = list(range(1, len(content.variants)))
    if len(variants) > MAX_STYLES:
        order.sort(
            key=lambda i: content.metric.sign * (variants[i - 1].verdict.difference.mean or 0.0)
        )
    names = [wrap_name(plot_name(content.variants[i])) for i in order]
    rows = sum(max(1.0, 0.72 * (1 + name.count("\n"))) for name in names)
    better = "right" if content.metric.higher_is_better else "left"
    label = f"difference from {content.baseline.name} in {content.metric.title}"

    def draw(figure, panels, wide):
        for axes, (title, (base, *others)) in zip(panels, sizes.items(), strict=True):
            for row, i in enumerate(order):
                _draw_forest_row(axes, row, others[i - 1], base, content)
                if wide and len(sizes) == 1:
                    _write_estimate(axes, row, others[i - 1], content)
            _draw_zero_and_margin(axes, content)
            axes.set_title(title)
            axes.set_yticks(range(len(order)), names)
            axes.set_ylim(len(order) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.margins(x=0.06)
            axes.locator_params(axis="x", nbins=8 if wide and len(sizes) == 1 else 4)
            one_line = wide and len(sizes) == 1
            text = label if one_line else wrap_name(label, 44)
            axes.set_xlabel(
                f"{text}{' ' if one_line else chr(10)}({better} is better)", loc="right"
            )

    note = (
        "Squares: mean difference with its 95 % CI, filled if significant after Holm's correction."
        " Dots: one seed each."
    )
    if content.margin:
        note += f" Dashed: the margin of {content.metric.format_exact(content.margin)}."
    title, height = f"Differences from {content.baseline.name}", 1.3 + 0.34 * rows
    yield Figure("forest", title, note, height, draw, panels=len(sizes))


def _draw_zero_and_margin(axes: Any, content: Content) -> None:
    axes.axvline(0, color=INK, linewidth=1.2)
    if content.margin:
        margin = content.margin * content.metric.scale
        axes.axvspan(-margin, margin, color="#eeeeee", zorder=0)
        for side in (-margin, margin):
            axes.axvline(side, color=INK, linewidth=0.9, linestyle="--")


def _write_estimate(axes: Any, row: int, variant: VariantResult, content: Content) -> None:
    """Writes the difference and its interval right of the axes."""
    if variant.verdict.difference.mean is None:
        return
    mean, span = content.metric.estimate(variant.verdict.difference, digits=None, signed=True)
    text = mean if span == NONE else f"{mean} ({span})"
    axes.annotate(
        text,
        (1.0, row),
        (12, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        annotation_clip=False,
    )


def _draw_forest_row(
    axes: Any, row: int, variant: VariantResult, baseline: VariantResult, content: Content
) -> None:
    """Draws the difference of one variant, its interval, and a dot for each seed."""
    verdict, scale = variant.verdict, content.metric.scale
    d = verdict.difference
    if d.mean is None:
        axes.annotate(
            OUTCOMES[verdict.outcome],
            (0, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            style="italic",
        )
        return
    base, own = baseline.runs.values, variant.runs.values
    each = [scale * (own[seed] - base[seed]) for seed in sorted(own.keys() & base.keys())]
    axes.plot(each, [row + 0.24] * len(each), ".", color=FAINT, markersize=4)
    if d.low is not None:
        axes.plot(
            [scale * d.low, scale * d.high],
            [row, row],
            "-|",
            color=INK,
            linewidth=1.8,
            markersize=8,
        )
    axes.plot(
        scale * d.mean,
        row,
        "s",
        color=INK,
        markerfacecolor=INK if verdict.outcome in ("better", "worse", "equivalent") else "white",
        markersize=7,
    )


def history(content: Content) -> Iterator[Figure]:
    """Optimization history: the trials of a search in order, and the best so far."""
    search, metric = content.search, content.metric
    if search is None or not search.best:
        return
    done = {
        point["number"]: metric.scale * point["value"]
        for point in search.points
        if point["value"] is not None
    }
    without_value = [point["number"] for point in search.points if point["value"] is None]
    better, edge = (max, 0.0) if metric.higher_is_better else (min, 1.0)

    def draw(axes):
        axes.step(
            [*done],
            list(accumulate(done.values(), better)),
            where="post",
            color=INK,
            label="best so far",
        )
        axes.plot([*done], [*done.values()], "o", color=COLOURS[2], markersize=5, label="trial")
        if without_value:
            axes.plot(
                without_value,
                [edge] * len(without_value),
                "x",
                color=FAINT,
                clip_on=False,
                transform=axes.get_xaxis_transform(),
                label="no value",
            )
        integer_ticks(axes.xaxis)

    yield line_plot(
        "history",
        "Optimization history",
        "All finished trials at the seed of the search. Crosses at the edge: pruned, diverged and"
        " failed trials.",
        draw,
        "trial",
        metric.title,
        height=3.6,
    )


COSTS = {"flops": "training FLOPs of a run", "params": "parameters", "seconds": "time of a run"}


def costs(content: Content) -> Iterator[Figure]:
    """The metric against every cost in which variants differ; not against parameters if FLOPs
    differ.
    """
    drawn = [name for name in COSTS if _cost_varies(content, name)]
    for name in drawn:
        if name != "params" or "flops" not in drawn:
            yield _cost_figure(content, name)


def _cost_varies(content: Content, name: str) -> bool:
    """Whether variants differ in a cost by more than the tolerance of a matched budget."""
    known = [variant.cost[name] for variant, _ in _with_cost(content, name)]
    allowed = 1.02 + content.results.study["budget"]["tolerance"]
    return len(known) > 1 and max(known) > allowed * min(known)


def _with_cost(content: Content, name: str) -> list[tuple[VariantResult, LineStyle]]:
    """The variants whose cost and mean are known, with their styles."""
    return [
        (one, style)
        for one, style in zip(content.variants, variant_styles(content), strict=True)
        if one.cost[name] and one.mean is not None
    ]


def _cost_figure(content: Content, name: str) -> Figure:
    """The metric against one cost, with the Pareto front."""
    known, metric = _with_cost(content, name), content.metric
    unit, label = 1.0, COSTS[name]
    if name == "seconds":
        unit, label = _time_unit(max(variant.cost[name] for variant, _ in known))

    def draw(axes):
        from matplotlib.ticker import EngFormatter

        front = pareto_front(
            [(variant.cost[name], variant.mean) for variant, _ in known], metric.higher_is_better
        )
        # The front continues to the highest cost.
        front.append((max(variant.cost[name] for variant, _ in known), front[-1][1]))
        line = zip(*((x / unit, metric.scale * y) for x, y in front), strict=True)
        axes.step(*line, where="post", color=INK, linewidth=0.9)
        for variant, style in known:
            _draw_mean(axes, variant.cost[name] / unit, variant.best.interval, style, metric.scale)
        axes.xaxis.get_major_locator().set_params(nbins=5)
        if name != "seconds":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.margins(0.08)

    figure = line_plot(
        f"cost {name}",
        f"{COSTS[name][0].upper()}{COSTS[name][1:]} against {metric.name}",
        "Mean with its 95 % CI. Thin line: the Pareto front of the means.",
        draw,
        label,
        metric.title,
        [style for _, style in known],
    )
    return replace(figure, height=3.3 + legend_height(variant_styles(content)))


def _time_unit(maximum: float) -> tuple[float, str]:
    """(seconds per unit, label of the axis) for times up to this."""
    unit, name = (1.0, "seconds") if maximum < 100 else (60.0, "minutes")
    unit, name = (unit, name) if maximum < 6000 else (3600.0, "hours")
    return unit, f"measured time of a run in {name}"


def _draw_mean(axes: Any, x: float, found: Interval, style: LineStyle, scale: float) -> None:
    """Draws a variant's mean with its interval."""
    mark: dict[str, Any] = {"markersize": 4, "capsize": 0, "zorder": 1}
    if style.name:
        mark = {"markersize": 7, "capsize": 3, "zorder": 3, "label": style.label}
        if found.low is not None:
            mark["yerr"] = scale * (found.high - found.mean)
    axes.errorbar(x, scale * found.mean, **style.errorbar_options, **mark)


def pareto_front(
    points: list[tuple[float, float]], higher_is_better: bool
) -> list[tuple[float, float]]:
    """The (cost, value) points to which no other is better at the same or a lower cost, sorted by
    cost.
    """
    sign, found = -1 if higher_is_better else 1, list[tuple[float, float]]()
    for cost, value in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not found or sign * value < sign * found[-1][1]:
            found.append((cost, value))
    return found
