"""The tables of a report."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xformer_kit.study.answer import Runs
from xformer_kit.study.metric import Metric, decimals, format_p, plain, significant_digits
from xformer_kit.study.nodes import Node
from xformer_kit.study.numbers import NONE, clock, compact, percent
from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Table
from xformer_kit.study.report.secondary_metrics import SecondaryMetric
from xformer_kit.study.results import STATUS_NAMES
from xformer_kit.study.statistics import Difference, Interval, interval
from xformer_kit.study.variants import VariantResult

MAX_SEEDS = 12  # seed columns in the table of runs
OUTCOMES = {
    "baseline": "baseline",
    "better": "better",
    "worse": "worse",
    "equivalent": "equivalent",
    "not significant": "not significant",
    "diverged": "diverged",
    "stopped": "stopped early",
    "unknown": "not tested",
}
METHODS = {  # how an effect is estimated
    "matched": "averaged over the combinations of the other factors",
    "additive": "fitted without interactions, because combinations are missing",
}


def means(content: Content) -> Table:
    """Mean and confidence interval of each variant."""
    metric = content.metric
    digits = _digits(metric, (variant.best.interval for variant in content.variants))
    return Table(
        "Means",
        ["variant", "mean", "95 % CI", "sd", "finished"],
        [
            [
                variant.full_name,
                *metric.estimate(found, digits=digits),
                NONE if found.sd is None else metric.format(found.sd, unit=False),
                f"{found.count} of {variant.runs.total}",
            ]
            for variant in content.variants
            for found in [variant.best.interval]
        ],
        f"Mean of {metric.title} over finished runs, with its 95 % confidence interval (CI,"
        f" Student's t); {'higher' if metric.higher_is_better else 'lower'} is better. sd: standard"
        f" deviation of one run.{_top_rung_note(content)}",
    )


def _digits(metric: Metric, found: Iterable[Interval | Difference | None]) -> int:
    """Decimals of values without an interval: the most that one of these intervals supports; 4 if
    there is none.
    """
    known = (one for one in found if one is not None and one.low != one.high)
    return max((metric.digits(one) or 0 for one in known if one.low is not None), default=4)


def _run_digits(content: Content) -> int:
    """Decimals of the value of one run: those of the means and of the differences."""
    means = [variant.best.interval for variant in content.variants]
    return _digits(
        content.metric,
        [*means, *(one.verdict.difference for one in content.variants if one.verdict)],
    )


def _top_rung_note(content: Content) -> str:
    """A note on which rung of a ladder or which size the runs are; empty for one size."""
    if content.sizes:
        return f" Runs at the largest size, {content.sizes[-1].name}."
    if content.laws is None:
        return ""
    return f" Runs of the top rung, {content.laws.top}; see All rungs for the others."


def differences(content: Content) -> Table:
    """Paired differences of all variants to the baseline, with tests."""
    known = [(one, one.verdict) for one in content.variants if one.verdict is not None]
    header = ["variant", "difference", "95 % CI", "effect size", "p (Holm)"]
    note = (
        f"Variant minus {content.baseline.name} in {content.metric.title}, paired by seed (t test)."
        " CI: confidence interval, not corrected. Effect size: the difference in standard"
        " deviations of one seed's difference, bias-corrected (Hedges, 1981). p (Holm): of no"
        " difference, corrected for all variants (Holm, 1979); significant if at most 0.05. Minimum"
        " detectable effects are at 80 % power."
    )
    if any(verdict.difference.method == "bootstrap" for _, verdict in known):
        note += " From 20 seeds on, intervals are from the BCa bootstrap."
    note += _top_rung_note(content)
    if content.margin:
        header.append("p (equivalence)")
        large = content.metric.format_exact(content.margin)
        note += (
            f" p (equivalence): of a difference of at least the margin, {large} (two one-sided t"
            " tests), Holm-corrected."
        )
    header += ["seeds", "outcome"]
    return Table(
        "Differences from the baseline",
        header,
        [
            [
                variant.full_name,
                *difference_cells(verdict.difference, verdict.p, content),
                *([_p_cell(verdict.p_margin)] if content.margin else []),
                str(verdict.difference.count),
                OUTCOMES[verdict.outcome],
            ]
            for variant, verdict in known
        ],
        note,
        text=(len(header) - 1,),
    )


def difference_cells(d: Difference, p: float | None, content: Content) -> list[str]:
    """Cells of a difference: mean, interval, effect size and p, with signs."""
    return [
        *content.metric.estimate(d, digits=None, signed=True),
        _effect_cell(d),
        _p_cell(p),
    ]


def _effect_cell(d: Difference) -> str:
    """The effect size g, with the decimals that its 95 % interval supports, about g +- 2 sqrt(1 / n
    + g^2 / (2 (n - 1))) for n pairs (Hedges and Olkin, 1985).
    """
    if d.effect is None:
        return NONE
    error = 2 * math.sqrt(1 / d.count + d.effect**2 / (2 * max(1, d.count - 1)))
    return plain(d.effect, decimals(error))


def _p_cell(p: float | None) -> str:
    """p without its letter: 0.012, or < 0.0001."""
    return NONE if p is None else format_p(p).removeprefix("p ").removeprefix("= ")


def effects(content: Content) -> Iterator[Table]:
    """The tables of main effects and of two-factor interactions."""
    methods = dict.fromkeys(
        METHODS[effect.method] for effect, *_ in content.effects if effect.method in METHODS
    )
    note = f"{' or '.join(methods)}, within each seed; p is corrected over both tables (Holm)."
    notes = {
        "Main effects": note[0].upper() + note[1:],
        "Interactions": "Effect of two changes together minus the sum of their separate effects.",
    }
    header = ["effect", "difference", "95 % CI", "effect size", "p (Holm)"]
    header += ["combinations", "seeds"]
    for factors, (title, note) in enumerate(notes.items(), 1):
        rows = [
            [
                effect.name,
                *difference_cells(effect.difference, p, content),
                f"{effect.used} of {effect.combinations}",
                str(effect.difference.count),
            ]
            for effect, p, _ in content.effects
            if len(effect.factors) == factors
        ]
        if rows:
            yield Table(title, header, rows, f"In {content.metric.title}. {note}")


def secondary(content: Content, one: SecondaryMetric) -> Table:
    """The table of a secondary metric."""
    rows, metric = [], one.metric
    column = _digits(metric, one.means)
    for variant, mean, d in zip(content.variants, one.means, one.differences, strict=True):
        digits = column
        if mean.low == mean.high:  # all runs have the same value
            digits = 0 if float((mean.mean or 0) * metric.scale).is_integer() else column
            mean = replace(mean, low=None, high=None)
        rows.append(
            [
                variant.full_name,
                *metric.estimate(mean, digits=digits),
                *metric.estimate(d, digits=None, signed=True),
                str(mean.count),
            ]
        )
    return Table(
        metric.title,
        ["variant", "mean", "95 % CI", "difference", "its 95 % CI", "finished"],
        rows,
    )


def trials(content: Content, title: str, points: list[Node], note: str = "") -> Table:
    """Trials of a search."""
    digits = _run_digits(content)
    return Table(
        title,
        ["trial", "differences from the baseline", content.metric.title, "step"],
        [
            [
                str(point["number"]),
                point["label"],
                (
                    _status_text(point["status"])
                    if point["value"] is None
                    else content.metric.format(point["value"], digits, unit=False)
                ),
                _step_cell(point["step"]),
            ]
            for point in points
        ],
        note,
        text=(1,),
    )


def importance(content: Content) -> Table:
    """The importance of each factor of a search."""
    found = content.search.importance if content.search else {}
    return Table(
        "Parameter importance",
        ["factor", "share"],
        [[name, f"{100 * share:.0f} %"] for name, share in found.items()],
        "How far the distribution of a factor in the best tenth of finished trials differs from"
        " that in all (PED-ANOVA, Watanabe et al., 2023). Unreliable below about 50 trials.",
    )


def costs(content: Content) -> Table:
    """The cost of each variant: counted from its config, and measured in its runs."""
    rows = []
    for variant in content.variants:
        cost = variant.cost
        params = f"{cost['params']:,.0f}" if cost["params"] is not None else NONE
        if off := variant.relative(content.baseline, "params"):
            params += f" ({percent(off)})"
        memory, seconds = cost["peak_memory_bytes"], cost["seconds"]
        speed = cost["tokens_per_second"]
        rows.append(
            [
                variant.full_name,
                params,
                *(compact(cost[name]) for name in ("flops", "tokens")),
                compact(speed, _measured_digits(content, variant, "tokens_per_second", speed)),
                f"{compact(memory)}B" if memory else NONE,
                clock(seconds, _measured_digits(content, variant, "seconds", seconds))
                if seconds
                else NONE,
            ]
        )
    return Table(
        "Cost",
        [
            "variant",
            "parameters",
            "training FLOPs",
            "tokens",
            "tokens/s",
            "peak memory",
            "time of a run",
        ],
        rows,
        "Parameters, FLOPs and tokens are counted from the config. Speed (mean), memory (maximum)"
        " and time (mean over runs) are measured, and depend on the machine and its load.",
    )


def _measured_digits(
    content: Content, variant: VariantResult, name: str, mean: float | None
) -> int:
    """The significant digits of the mean of a measured cost that its interval over runs
    supports.
    """
    outcomes = content.results.outcomes_of(variant.best.index)
    each = [float(o.facts.get(name) or 0.0) for o in outcomes if o.status == "finished"]
    found = interval([x for x in each if x])
    return significant_digits(mean, found.low, found.high) if mean else 2


def composition(content: Content) -> Table:
    """The overrides of each variant."""
    rows = [[variant.name, variant.overrides or NONE] for variant in content.variants]
    header = ["variant", "overrides"]
    if content.results.study["budget"]["match"] != "none":
        header.append("difference in budget")
        for row, variant in zip(rows, content.variants, strict=True):
            row.append(percent(variant.off) if variant.off else "0")
    return Table("Overrides", header, rows, text=(1,))


def tuning(content: Content) -> Table:
    """The mean of every variant at every tuning point."""
    metric = content.metric
    points = [point.interval for variant in content.variants for point in variant.points]
    digits = _digits(metric, points)
    return Table(
        "Tuning",
        ["variant", "point", f"mean {metric.title}", "finished", "diverged", "selected"],
        [
            [
                variant.name,
                " ".join(point.tuned),
                metric.estimate(point.interval, digits=digits)[0],
                f"{point.interval.count} of {point.runs.total}",
                str(len(point.runs.diverged) or ""),
                "best" if point is variant.best and variant.mean is not None else "",
            ]
            for variant in content.variants
            for point in variant.points
        ]
        if content.tuning
        else [],
        text=(1, 5),
    )


def runs(content: Content) -> Table:
    """The metric of every compared run, one column per seed; empty above MAX_SEEDS seeds."""
    seeds = sorted(content.results.seeds)
    return Table(
        "All runs",
        ["variant", *(f"seed {seed}" for seed in seeds)],
        [
            [variant.full_name, *(_run_cell(variant.runs, seed, content) for seed in seeds)]
            for variant in content.variants
            if len(seeds) <= MAX_SEEDS
        ],
        f"{content.metric.title} at the end of each run.{_top_rung_note(content)}",
    )


def _run_cell(runs: Runs, seed: int, content: Content) -> str:
    """The value of a run, or why it has none."""
    if seed in runs.values:
        return content.metric.format(runs.values[seed], _run_digits(content), unit=False)
    if seed in runs.diverged:
        return f"diverged at {runs.diverged[seed]:,}"
    others = {"failed": runs.failed, "left out": runs.left_out, "open": runs.unfinished}
    return next((status for status, seeds in others.items() if seed in seeds), "")


def irregular_runs(content: Content) -> Table:
    """Runs that did not end as planned."""
    return Table(
        "Diverged, failed and unfinished runs",
        ["variant", "seed", "status", "step", "reason"],
        [
            [
                one.name,
                str(one.seed),
                _status_text(one.status),
                _step_cell(one.step),
                one.why or NONE,
            ]
            for one in content.irregular_runs
        ],
        text=(2, 4),
    )


def _status_text(status: str) -> str:
    return STATUS_NAMES.get(status, status)


def _step_cell(step: int | None) -> str:
    return NONE if step is None else f"{step:,}"


def versions(content: Content) -> Table:
    return Table(
        "Versions",
        ["package", "version"],
        [[package, version] for package, version in content.versions.items()],
        text=(1,),
    )
