"""The tables of a report, as text: HTML and Markdown show the same."""

from collections.abc import Iterator
from dataclasses import dataclass

from xformer_kit.study.answer import Verdict
from xformer_kit.study.factorial import Effect
from xformer_kit.study.figures import Metric, decimals, p_said
from xformer_kit.study.report.arms import Arm
from xformer_kit.study.report.content import Content, interval_said, mean_said
from xformer_kit.study.report.said import compact, relative, share
from xformer_kit.study.statistics import Difference, Interval

NONE = "-"  # what is not known
MOST_SEEDS = 12  # columns of the table of runs


@dataclass(frozen=True)
class Table:
    """`numeric`: columns whose figures stand under each other."""

    title: str
    header: list[str]
    rows: list[list[str]]
    numeric: frozenset[int]
    note: str = ""


def unit(measured: Metric) -> str:
    return f"{measured.name} ({measured.unit})" if measured.unit else measured.name


def figures(content: Content) -> Table:
    """Mean and interval of each variant."""
    measured, rows = content.metric, []
    for arm in content.arms:
        low, high = interval_said(arm, measured)
        found, runs = arm.best.interval, arm.runs
        sd = NONE if found.sd is None else measured.said(found.sd, unit=False)
        rows.append(
            [
                _named(arm),
                mean_said(arm, measured, unit=False) or NONE,
                _span(low, high),
                sd,
                f"{found.count} of {runs.total}",
            ]
        )
    note = (
        f"Mean of {unit(measured)} over the runs that finished, with the t interval of the mean;"
        f" {'higher' if measured.higher_is_better else 'lower'} is better. sd: of one"
        f" run.{_of_top(content)}"
    )
    return Table(
        "Means",
        ["variant", "mean", "95 % interval", "sd", "finished"],
        rows,
        frozenset({1, 2, 3, 4}),
        note,
    )


def differences(content: Content) -> Table | None:
    """Each variant against the baseline."""
    rows = [
        _difference(arm, arm.verdict, content) for arm in content.arms if arm.verdict is not None
    ]
    if not rows:
        return None
    header = [
        "variant",
        "difference",
        "95 % interval",
        "effect size",
        "p (Holm)",
        "seeds",
        "verdict",
    ]
    note = (
        f"Variant minus {content.baseline.name} in {unit(content.metric)}, seed by seed (paired t)."
        " Effect size: the difference in standard deviations of one seed's difference, without"
        " bias (Hedges, 1981). p of no difference, corrected for all variants together (Holm,"
        " 1979); intervals are not corrected."
    )
    if any(
        arm.verdict is not None and arm.verdict.difference.method == "bootstrap"
        for arm in content.arms
    ):
        note += " Intervals from 20 seeds upwards are of the bootstrap (BCa)."
    if content.margin:
        header.insert(5, "p (margin)")
        large = content.metric.as_given(content.margin)
        note += f" p (margin): of a difference as large as the margin, {large}, corrected likewise."
    return Table(
        "Differences to the baseline", header, rows, frozenset(range(1, len(header) - 1)), note
    )


def _difference(arm: Arm, verdict: Verdict, content: Content) -> list[str]:
    d, measured = verdict.difference, content.metric
    mean, low, high = difference_said(d, measured)
    effect = NONE if d.effect is None else f"{d.effect:.2f}"
    margin = [_p(verdict.p_margin)] if content.margin else []
    return [
        _named(arm),
        mean,
        _span(low, high),
        effect,
        _p(verdict.p),
        *margin,
        str(d.count),
        WORDS[verdict.outcome],
    ]


WORDS = {
    "better": "better",
    "worse": "worse",
    "equivalent": "equivalent",
    "unseen": "no difference seen",
    "diverged": "diverged",
    "stopped": "stopped early",
    "unknown": "not compared",
}


def difference_said(d: Difference, measured: Metric) -> tuple[str, str, str]:
    """Mean and bounds of a difference, with the digits that its interval supports; signs are
    written out.
    """
    if d.mean is None:
        return NONE, "", ""
    n = decimals((d.high - d.low) / 2 * measured.scale) if d.low is not None else None
    mean = _signed(d.mean, measured, n)
    return (
        (mean, "", "")
        if d.low is None
        else (mean, _signed(d.low, measured, n), _signed(d.high, measured, n))
    )


def _signed(value: float, measured: Metric, n: int | None) -> str:
    text = measured.said(value, n, unit=False)
    return f"+{text}" if value > 0 and float(text) else text


def _p(p: float | None) -> str:
    return NONE if p is None else p_said(p).removeprefix("p ").removeprefix("= ")


def _span(low: str, high: str) -> str:
    return f"{low} to {high}" if low else NONE


def _named(arm: Arm) -> str:
    return " ".join((arm.name, *arm.best.tuned))


HOW = {  # how an effect is set free of the other factors
    "matched": "averaged over the combinations of the other factors",
    "additive": "fitted as if no factors interacted, where combinations are missing",
}


def effects(content: Content) -> Iterator[Table]:
    """Main effects, and interactions of two factors."""
    singles = [found for found in content.effects if len(found[0].factors) == 1]
    pairs = [found for found in content.effects if len(found[0].factors) == 2]
    ways = dict.fromkeys(
        HOW[found[0].method] for found in content.effects if found[0].method in HOW
    )
    note = f"{' or '.join(ways)}, within each seed; p after Holm over all rows of both tables."
    note = note[0].upper() + note[1:]
    if singles:
        yield _effects("Main effects", singles, content.metric, note)
    if pairs:
        more = "What two changes do together beyond the sum of what each does alone."
        yield _effects("Interactions", pairs, content.metric, more)


def also(content: Content) -> Iterator[Table]:
    """Further metrics, a table each."""
    for one in content.also:
        rows = []
        for arm, mean, d in zip(content.arms, one.means, one.differences, strict=True):
            away, least, most = (NONE, "", "") if d is None else difference_said(d, one.metric)
            said, low, high = _mean_said(mean, one.metric)
            rows.append(
                [_named(arm), said, _span(low, high), away, _span(least, most), str(mean.count)]
            )
        header = ["variant", "mean", "95 % interval", "difference", "its 95 % interval", "finished"]
        yield Table(unit(one.metric), header, rows, frozenset(range(1, 6)))


def _mean_said(found: Interval, measured: Metric) -> tuple[str, str, str]:
    """A mean and its bounds, with the digits that they support; of runs that all have the same
    figure, that figure.
    """
    if found.mean is None:
        return NONE, "", ""
    if found.low is None or found.high is None or found.low == found.high:
        whole = float(found.mean * measured.scale).is_integer()
        return measured.said(found.mean, 0 if whole else 4, unit=False), "", ""
    n = decimals((found.high - found.low) / 2 * measured.scale)
    mean, low, high = (measured.said(x, n, unit=False) for x in (found.mean, found.low, found.high))
    return mean, low, high


def _effects(
    title: str, found: list[tuple[Effect, float | None, str]], measured: Metric, note: str
) -> Table:
    rows = []
    for effect, p, _ in found:
        mean, low, high = difference_said(effect.difference, measured)
        d = effect.difference.effect
        used = f"{effect.used} of {effect.combinations}"
        size = NONE if d is None else f"{d:.2f}"
        rows.append(
            [effect.name, mean, _span(low, high), size, _p(p), used, str(effect.difference.count)]
        )
    header = [
        "effect",
        "difference",
        "95 % interval",
        "effect size",
        "p (Holm)",
        "combinations",
        "seeds",
    ]
    return Table(title, header, rows, frozenset(range(1, 7)), f"In {unit(measured)}. {note}")


def trials(content: Content, most: int | None = None) -> Table | None:
    """The trials of a search: the `most` best, or all in their order."""
    if (search := content.search) is None or (most is not None and not search.best):
        return None
    places, rows = range(len(search.points)) if most is None else search.best[:most], []
    for point in (search.points[i] for i in places):
        value = (
            said(point["status"])
            if point["value"] is None
            else content.metric.said(point["value"], 4, unit=False)
        )
        rows.append([str(point["number"]), point["label"], value, at(point["step"])])
    header = ["trial", "changed to the baseline", unit(content.metric), "step"]
    note = "" if most is None else "At the seed of the search, at which they were chosen."
    return Table(
        "Every trial" if most is None else "Best trials", header, rows, frozenset({2, 3}), note
    )


def importance(content: Content) -> Table | None:
    """What counted in a search."""
    if content.search is None or not content.search.importance:
        return None
    rows = [[name, f"{100 * share:.0f} %"] for name, share in content.search.importance.items()]
    note = (
        "How far a factor's values among the best tenth of finished trials differ from those among"
        " all (PED-ANOVA, Watanabe et al., 2023). Below about 50 trials, a hint."
    )
    return Table("What counted", ["factor", "share"], rows, frozenset({1}), note)


def costs(content: Content) -> Table:
    """What each variant costs: counted before the runs, and measured in them."""
    rows = []
    for arm in content.arms:
        cost = arm.cost
        params = f"{cost['params']:,.0f}" if cost["params"] is not None else NONE
        if arm is not content.baseline and (off := relative(arm, content.baseline, "params")):
            params += f" ({share(off)})"
        memory = f"{compact(cost['peak_memory_bytes'])}B" if cost["peak_memory_bytes"] else NONE
        time = clock(cost["seconds"]) if cost["seconds"] else NONE
        speed = compact(cost["tokens_per_second"]) or NONE
        rows.append(
            [
                _named(arm),
                params,
                compact(cost["flops"]) or NONE,
                compact(cost["tokens"]) or NONE,
                speed,
                memory,
                time,
            ]
        )
    header = [
        "variant",
        "parameters",
        "training FLOPs",
        "tokens",
        "tokens/s",
        "peak memory",
        "time of a run",
    ]
    note = (
        "Parameters, FLOPs and tokens are counted from the config. Speed, memory (the largest of"
        " the runs) and time (the mean) are of the machine, and of what else ran on it."
    )
    return Table("Cost", header, rows, frozenset(range(1, 7)), note)


def clock(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def composition(content: Content) -> Table:
    """The overrides that make each variant."""
    rows = []
    for arm in content.arms:
        words = " ".join((*arm.words, *arm.best.tuned, *arm.knob)) or NONE
        off = share(arm.off) if arm.off else "0"
        rows.append([arm.name, words, *([off] if _matches(content) else [])])
    header = ["variant", "overrides", *(["off the budget"] if _matches(content) else [])]
    return Table(
        "How the variants are composed", header, rows, frozenset({2} if _matches(content) else ())
    )


def _matches(content: Content) -> bool:
    return content.match != "none"


def points(content: Content) -> Table | None:
    """Every point of the tuning."""
    if not content.tuning:
        return None
    rows = []
    for arm in content.arms:
        for point in arm.points:
            found = point.interval
            mean = NONE if found.mean is None else content.metric.said(found.mean, 4, unit=False)
            lost = str(len(point.runs.diverged) or "")
            best = "best" if point is arm.best and found.mean is not None else ""
            rows.append(
                [arm.name, point.said, mean, f"{found.count} of {point.runs.total}", lost, best]
            )
    header = [
        "variant",
        "point",
        f"mean {unit(content.metric)}",
        "finished",
        "diverged",
        "compared at",
    ]
    return Table("Tuning", header, rows, frozenset({2, 3, 4}))


def runs(content: Content) -> Table | None:
    """The figure of every run that is compared, a column for each seed."""
    if len(content.seeds) > MOST_SEEDS:
        return None
    rows = [
        [_named(arm), *(_cell(arm, seed, content.metric) for seed in content.seeds)]
        for arm in content.arms
    ]
    header = ["variant", *(f"seed {seed}" for seed in content.seeds)]
    note = f"{unit(content.metric)} at the end of each run.{_of_top(content)}"
    return Table("Every run", header, rows, frozenset(range(1, len(header))), note)


def _of_top(content: Content) -> str:
    """Of a ladder, which of its runs these are."""
    return (
        f" Those of the top rung, {content.laws.top}; all are under Every rung."
        if content.laws
        else ""
    )


def _cell(arm: Arm, seed: int, measured: Metric) -> str:
    if seed in arm.runs.values:
        return measured.said(arm.runs.values[seed], 4, unit=False)
    if seed in arm.runs.diverged:
        return f"diverged at {arm.runs.diverged[seed]:,}"
    if seed in arm.runs.failed:
        return "failed"
    if seed in arm.runs.left_out:
        return "left out"
    return "open" if seed in arm.runs.unfinished else ""


def troubles(content: Content) -> Table | None:
    """Runs that did not end as they were planned."""
    if not content.troubles:
        return None
    rows = [
        [
            " ".join(filter(None, (t.variant, t.tuned))),
            str(t.seed),
            said(t.status),
            at(t.step),
            t.why or NONE,
        ]
        for t in content.troubles
    ]
    header = ["variant", "seed", "what became of it", "step", "why"]
    return Table("What diverged, failed or is unfinished", header, rows, frozenset({1, 3}))


def said(status: str) -> str:
    return {
        "open": "not started",
        "stopped": "stopped, can be resumed",
        "pruned": "ended early",
    }.get(status, status)


def at(step: int | None) -> str:
    return NONE if step is None else f"{step:,}"


def versions(content: Content) -> Table | None:
    if not content.versions:
        return None
    return Table(
        "Versions",
        ["package", "version"],
        [[k, v] for k, v in content.versions.items()],
        frozenset(),
    )
