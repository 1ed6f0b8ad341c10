"""The pictures of a report: learning curves with bands, the differences, and what a better figure
costs.
"""

from collections.abc import Callable, Iterator
from typing import Any

from xformer_kit.inspect.style import FAINT, INK, bounds, whole
from xformer_kit.registry import ConfigError
from xformer_kit.study.figures import Metric, metric
from xformer_kit.study.report import law_plots
from xformer_kit.study.report.arms import Arm
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.curves import Curve
from xformer_kit.study.report.look import (
    COLOURS,
    MOST,
    Look,
    Picture,
    canvas,
    legend,
    lines,
    looks,
    title,
    wrapped,
)
from xformer_kit.study.report.said import exact
from xformer_kit.study.report.tables import WORDS, unit
from xformer_kit.study.statistics import Band


def pictures(content: Content) -> Iterator[Picture]:
    """Those that the study has figures for."""
    look = looks(content)
    yield from law_plots.pictures(content, look)
    if any(arm.verdict and arm.verdict.difference.mean is not None for arm in content.arms):
        yield _forest(content)
    if any(len(gap.steps) > 1 for gap in content.gaps):
        yield _gaps(content, next(iter(content.curves)), look)
    if content.search and content.search.best:
        yield _history(content)
    for name, found in content.curves.items():
        if any(curve.band.steps or curve.lost for curve in found):
            yield _curves(content, name, found, look)
    for name in ("flops", "params", "seconds"):
        if _varies(content, name):
            yield _cost(content, name, look)


def _forest(content: Content) -> Picture:
    """Differences with their intervals, the zero line, and the margin."""
    arms = [arm for arm in content.arms if arm.verdict is not None]
    if len(arms) > MOST:
        sign = -1 if content.metric.higher_is_better else 1
        arms.sort(key=lambda arm: sign * (arm.verdict.difference.mean or 0.0))
    names = [title(arm) for arm in arms]
    tall = sum(max(1.0, 0.72 * (1 + name.count("\n"))) for name in names)

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(1.3 + 0.34 * tall, "forest") as (figure, axes):
            for row, arm in enumerate(arms):
                _row(axes, row, arm, content)
            axes.axvline(0, color=INK, linewidth=1.2)
            if content.margin:
                _margin(axes, content)
            axes.set_yticks(range(len(arms)), names)
            axes.set_ylim(len(arms) - 0.4, -0.6)
            axes.grid(axis="y", visible=False)
            axes.margins(x=0.06)
            side = "right" if content.metric.higher_is_better else "left"
            axes.locator_params(axis="x", nbins=4)
            words = f"difference to {content.baseline.name} in {unit(content.metric)}"
            axes.set_xlabel(f"{wrapped(words, 44)}\n({side} is better)", loc="right")
            return done(figure)

    note = (
        "Large: the mean difference with its 95 % interval, filled where it holds after Holm's"
        " correction. Small: each seed."
    )
    if content.margin:
        note += f" Dashed: the margin of {content.metric.as_given(content.margin)}."
    return Picture("forest", f"Differences to {content.baseline.name}", note, draw)


def _history(content: Content) -> Picture:
    """The trials of a search in their order, and the best so far."""
    search, scale = content.search, content.metric.scale
    assert search is not None
    done = [
        (point["number"], scale * point["value"])
        for point in search.points
        if point["value"] is not None
    ]
    lost = [point["number"] for point in search.points if point["value"] is None]
    pick = max if content.metric.higher_is_better else min

    def draw(done_: Callable[[Any], Any]) -> Any:
        with canvas(3.6, "history") as (figure, axes):
            best = [pick(value for _, value in done[: i + 1]) for i in range(len(done))]
            axes.step([n for n, _ in done], best, where="post", color=INK, label="best so far")
            axes.plot(
                *zip(*done, strict=True), "o", color=COLOURS[2], markersize=5, label="a trial"
            )
            if lost:
                mark = {"color": FAINT, "clip_on": False, "transform": axes.get_xaxis_transform()}
                axes.plot(
                    lost,
                    [0.0 if content.metric.higher_is_better else 1.0] * len(lost),
                    "x",
                    **mark,
                    label="no figure",
                )
            axes.set_xlabel("trial")
            whole(axes.xaxis)
            axes.set_ylabel(unit(content.metric))
            legend(figure, axes, 0)
            return done_(figure)

    note = (
        "Every finished trial at the search's seed. A cross at the rim: ended early, diverged or"
        " failed."
    )
    return Picture("history", "History of the search", note, draw)


def _row(axes: Any, row: int, arm: Arm, content: Content) -> None:
    d, scale = arm.verdict.difference, content.metric.scale
    if d.mean is None:
        axes.annotate(
            WORDS[arm.verdict.outcome],
            (0, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            style="italic",
        )
        return
    base, mine = content.baseline.runs.values, arm.runs.values
    each = [scale * (mine[seed] - base[seed]) for seed in sorted(mine.keys() & base.keys())]
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
    shown = arm.verdict.outcome in ("better", "worse", "equivalent")
    axes.plot(
        scale * d.mean, row, "s", color=INK, markerfacecolor=INK if shown else "white", markersize=7
    )


def _margin(axes: Any, content: Content) -> None:
    reach = content.margin * content.metric.scale
    axes.axvspan(-reach, reach, color="#eeeeee", zorder=0)
    for side in (-reach, reach):
        axes.axvline(side, color=INK, linewidth=0.9, linestyle="--")


def _gaps(content: Content, name: str, look: list[Look]) -> Picture:
    measured = _metric(name, content)

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(_height(content, look), "gap") as (figure, axes):
            axes.axhline(0, color=INK, linewidth=1.2)
            for place, (arm, gap, its) in enumerate(
                zip(content.arms[1:], content.gaps, look[1:], strict=True)
            ):
                _band(axes, place, arm, gap, its, measured.scale)
            if top := _top(content.gaps):
                axes.set_ylim(measured.scale * min(top[0], 0.0), measured.scale * max(top[1], 0.0))
            axes.set_ylabel(f"difference in {unit(measured)}")
            _steps(figure, axes, look[1:])
            return done(figure)

    note = (
        f"Each variant minus {content.baseline.name} at the same step and seed: the mean over seeds"
        " with its 95 % interval."
    )
    return Picture("gap", f"Differences to {content.baseline.name} in training", note, draw)


def _metric(name: str, content: Content) -> Metric:
    if name == content.metric.name:
        return content.metric
    try:
        return metric(name)
    except ConfigError:  # a metric of one's own: no unit, no side
        return Metric(name, content.metric.higher_is_better)


def _height(content: Content, look: list[Look]) -> float:
    return 3.3 + 0.2 * lines(
        [title(arm) for arm, its in zip(content.arms, look, strict=True) if its.named]
    )


def _curves(content: Content, name: str, found: list[Curve], look: list[Look]) -> Picture:
    measured = _metric(name, content)

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(_height(content, look), name) as (figure, axes):
            for place, (arm, curve, its) in enumerate(zip(content.arms, found, look, strict=True)):
                _band(axes, place, arm, curve.band, its, measured.scale)
            if not measured.higher_is_better and (top := _top([curve.band for curve in found])):
                axes.set_ylim(*(measured.scale * y for y in top))
            for arm, curve, its in zip(content.arms, found, look, strict=True):
                _lost(axes, arm, curve, its, measured.scale)
            axes.set_ylabel(unit(measured))
            _steps(figure, axes, look)
            return done(figure)

    note = "Mean over the seeds that finished; the band is its 95 % interval at each step."
    if (averaged := max(curve.averaged for curve in found)) > 1:
        note += f" Each point is the mean of {averaged} records."
    if any(curve.lost for curve in found):
        note += (
            " Thin lines end where a run diverged, in a white sign with a cross; at the rim, where"
            " that is beyond."
        )
    return Picture(f"curve {name}", name, note, draw)


def _band(axes: Any, place: int, arm: Arm, band: Band, its: Look, scale: float) -> None:
    """The mean, and around it the interval."""
    if not band.steps:
        return
    if not its.named:
        axes.plot(
            band.steps, [scale * y for y in band.mean], color=its.color, linewidth=0.8, zorder=1
        )
        return
    every = max(1, len(band.steps) // 8)
    first = place * every // 8 % every  # markers of several variants do not hide each other
    style = {
        "color": its.color,
        "linestyle": its.line,
        "marker": its.marker,
        "markevery": (first, every),
    }
    axes.plot(band.steps, [scale * y for y in band.mean], label=title(arm), zorder=3, **style)
    if band.low is not None:
        low, high = ([scale * y for y in side] for side in (band.low, band.high))
        axes.fill_between(band.steps, low, high, color=its.color, alpha=0.13, linewidth=0)


def _lost(axes: Any, arm: Arm, curve: Curve, its: Look, scale: float) -> None:
    """Runs that diverged: thin, with a cross where they end, at the rim where that is beyond the
    picture.
    """
    low, high = axes.get_ylim()
    for i, (at, values) in enumerate(curve.lost):
        label = title(arm, "(diverged)") if its.named and not curve.band.steps and i == 0 else None
        axes.plot(
            at, [scale * y for y in values], color=its.color, linestyle=its.line, linewidth=0.9
        )
        end = min(max(scale * values[-1], low), high)
        mark = {"color": its.color, "linestyle": "", "clip_on": False, "zorder": 4}
        axes.plot(
            at[-1],
            end,
            marker=its.marker,
            markerfacecolor="white",
            markersize=9,
            label=label,
            **mark,
        )
        axes.plot(at[-1], end, marker="x", markersize=4.5, markeredgewidth=1.3, **mark)
    axes.set_ylim(low, high)


def _top(bands: list[Band]) -> tuple[float, float] | None:
    """Bounds of the axis, with the intervals."""
    sides = (
        (band.steps, side) for band in bands for side in (band.mean, band.low, band.high) if side
    )
    return bounds(sides)


def _steps(figure: Any, axes: Any, look: list[Look]) -> None:
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer step")
    whole(axes.xaxis)
    legend(figure, axes, sum(not its.named for its in look))


AXES = {"flops": "training FLOPs of a run", "params": "parameters", "seconds": "time of a run"}


def _varies(content: Content, name: str) -> bool:
    """Whether variants with a figure differ in this cost by more than they do where it is
    matched.
    """
    if name == "params" and _varies(content, "flops"):
        return False
    known = [arm.cost[name] for arm in _costed(content, name)]
    return len(known) > 1 and max(known) > (1.02 + content.tolerance) * min(known)


def _costed(content: Content, name: str) -> list[Arm]:
    return [arm for arm in content.arms if arm.cost[name] and arm.best.interval.mean is not None]


def _cost(content: Content, name: str, look: list[Look]) -> Picture:
    arms, scale = _costed(content, name), content.metric.scale
    its = {arm.label: one for arm, one in zip(content.arms, look, strict=True)}
    size, words = (
        _size(max(arm.cost[name] for arm in arms)) if name == "seconds" else (1.0, AXES[name])
    )

    def draw(done: Callable[[Any], Any]) -> Any:
        with canvas(_height(content, look), name) as (figure, axes):
            best = front(
                [(arm.cost[name], arm.best.interval.mean) for arm in arms],
                content.metric.higher_is_better,
            )
            line = zip(*((x / size, scale * y) for x, y in best), strict=True)
            axes.step(*line, where="post", color=INK, linewidth=0.9)
            for arm in arms:
                _point(axes, arm, arm.cost[name] / size, its[arm.label], scale)
            axes.set_xlabel(words)
            axes.set_ylabel(unit(content.metric))
            axes.xaxis.get_major_locator().set_params(nbins=5)
            if name != "seconds":
                axes.xaxis.set_major_formatter(lambda x, _: exact(x))
            axes.margins(0.08)
            legend(figure, axes, sum(not its[arm.label].named for arm in arms))
            return done(figure)

    note = (
        "Mean with its 95 % interval. The thin line is the front: no variant is at once cheaper and"
        " better in the mean than one on it."
    )
    return Picture(
        f"cost {name}",
        f"{AXES[name][0].upper()}{AXES[name][1:]} against {content.metric.name}",
        note,
        draw,
    )


def _size(most: float) -> tuple[float, str]:
    """Seconds of the unit in which times up to this are read, and the axis in it."""
    size, word = (
        (1.0, "seconds") if most < 100 else (60.0, "minutes") if most < 6000 else (3600.0, "hours")
    )
    return size, f"time of a run in {word}, as measured"


def _point(axes: Any, arm: Arm, x: float, its: Look, scale: float) -> None:
    found = arm.best.interval
    reach = None if found.low is None or not its.named else scale * (found.high - found.mean)
    axes.errorbar(
        x,
        scale * found.mean,
        yerr=reach,
        fmt=its.marker,
        color=its.color,
        capsize=3 if its.named else 0,
        elinewidth=1.0,
        markersize=7 if its.named else 4,
        label=title(arm) if its.named else None,
        zorder=3 if its.named else 1,
    )


def front(points: list[tuple[float, float]], higher_is_better: bool) -> list[tuple[float, float]]:
    """(cost, figure) of those that nothing at most as dear is better than, by cost."""
    sign, found = -1 if higher_is_better else 1, list[tuple[float, float]]()
    for cost, value in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not found or sign * value < sign * found[-1][1]:
            found.append((cost, value))
    return found
