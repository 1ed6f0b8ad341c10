"""Learning curves: mean curves with bands over finished runs, and the curves of diverged runs."""

from dataclasses import dataclass

from xformer_kit.metrics import TRAIN_LOSS, VAL_LOSS
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Band, band
from xformer_kit.study.variants import VariantResult

# Maximum points of a curve; of longer ones, neighbours are averaged. A training loss is that of one
# batch, so it is smoothed more.
MAX_POINTS = {"train": 40, "val": 120}

Curve = tuple[list[int], list[float]]


@dataclass(frozen=True)
class VariantCurve:
    """One metric of one variant."""

    band: Band
    diverged: list[Curve]  # curves of runs that diverged
    averaged: int  # records per point


def drawn_metrics(results: Results, metric: str) -> list[str]:
    """Metrics to draw, if runs recorded them: the study's metric, validation and training loss."""
    known = {name for one in results.outcomes for name in one.curves}
    return [name for name in dict.fromkeys((metric, VAL_LOSS, TRAIN_LOSS)) if name in known]


def curves(results: Results, variants: list[VariantResult], name: str) -> list[VariantCurve]:
    """The curve of every variant, with the same number of records per point."""
    chosen = [results.outcomes_of(one.best.index) for one in variants]
    max_points = MAX_POINTS["train" if name.startswith("train/") else "val"]
    longest = max(
        (len(one.curves[name][0]) for each in chosen for one in each if name in one.curves),
        default=0,
    )
    averaged = -(-longest // max_points) or 1
    return [_variant_curve(each, name, averaged) for each in chosen]


def difference_curves(results: Results, variants: list[VariantResult], name: str) -> list[Band]:
    """variant - baseline at every step, paired by seed, for every variant but the baseline. The
    effect of the seed on both cancels, so differences smaller than those between seeds are visible.
    """
    every = [_finished_curves(results.outcomes_of(one.best.index), name) for one in variants]
    return [
        band(
            {
                seed: _curve_difference(own[seed], every[0][seed])
                for seed in own.keys() & every[0].keys()
            }
        )
        for own in every[1:]
    ]


def _curve_difference(variant: Curve, baseline: Curve) -> Curve:
    """variant - baseline at common steps."""
    before, after = (dict(zip(*curve, strict=True)) for curve in (baseline, variant))
    steps = [step for step in variant[0] if step in before]
    return steps, [after[step] - before[step] for step in steps]


def _finished_curves(outcomes: list[Outcome], name: str) -> dict[int, Curve]:
    """Seed -> curve of the metric, of finished runs."""
    return {
        one.seed: one.curves[name]
        for one in outcomes
        if one.status == "finished" and name in one.curves
    }


def _variant_curve(outcomes: list[Outcome], metric: str, averaged: int) -> VariantCurve:
    """The curve of a metric of one variant: a band over the seeds of finished runs, and a line of
    each diverged run. A point is the mean of `averaged` neighbouring records.
    """
    diverged = [
        _average_neighbours(one.curves[metric], averaged)
        for one in outcomes
        if one.status == "diverged" and metric in one.curves
    ]
    return VariantCurve(
        band(
            {
                seed: _average_neighbours(line, averaged)
                for seed, line in _finished_curves(outcomes, metric).items()
            }
        ),
        [line for line in diverged if line[0]],
        averaged,
    )


def _average_neighbours(curve: Curve, count: int) -> Curve:
    """Means of `count` neighbours each, at the last of their steps. An incomplete group at the end
    is left out, because its mean is noisier.
    """
    steps, values = curve
    if count == 1 or len(steps) < count:
        return curve
    ends = range(count, len(steps) + 1, count)
    return [steps[end - 1] for end in ends], [
        sum(values[end - count : end]) / count for end in ends
    ]
