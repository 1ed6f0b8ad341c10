"""Learning curves: mean curves with bands over the seeds that finished, and the ways of
those that diverged.
"""

from dataclasses import dataclass

from xformer_kit.study.report.variants import VariantResult
from xformer_kit.study.results import Outcome, Results
from xformer_kit.study.statistics import Band, band

DRAWN = {
    "train": 40,
    "val": 120,
}  # points of a curve; of more, neighbours are averaged: a loss in training is that of a batch

Line = tuple[list[int], list[float]]


@dataclass(frozen=True)
class VariantCurve:
    """One metric of one variant."""

    band: Band
    lost: list[Line]  # of runs that diverged
    averaged: int  # records that a point is the mean of


def names(results: Results, metric: str) -> list[str]:
    """The study's metric where runs recorded it, else the validation loss; and the training
    loss.
    """
    known = {name for one in results.outcomes for name in one.curves}
    first = metric if metric in known else "val/loss"
    return [name for name in dict.fromkeys((first, "train/loss")) if name in known]


def curves(results: Results, variants: list[VariantResult], name: str) -> list[VariantCurve]:
    """Of every variant, all thinned alike."""
    chosen = [results.of(one.best.index) for one in variants]
    most = DRAWN["train" if name.startswith("train/") else "val"]
    longest = max(
        (len(one.curves[name][0]) for each in chosen for one in each if name in one.curves),
        default=0,
    )
    averaged = -(-longest // most) or 1
    return [_curve(each, name, averaged) for each in chosen]


def gaps(results: Results, variants: list[VariantResult], name: str) -> list[Band]:
    """Of every variant but the baseline: variant - baseline along training, seed by seed. What a
    seed does to both is not in it, so that it shows differences that are smaller than those between
    seeds.
    """
    every = [_finished(results.of(one.best.index), name) for one in variants]
    return [
        band({seed: _minus(mine[seed], every[0][seed]) for seed in mine.keys() & every[0].keys()})
        for mine in every[1:]
    ]


def _minus(mine: Line, its: Line) -> Line:
    before = dict(zip(*its, strict=True))
    steps = [step for step in mine[0] if step in before]
    after = dict(zip(*mine, strict=True))
    return steps, [after[step] - before[step] for step in steps]


def _finished(outcomes: list[Outcome], name: str) -> dict[int, Line]:
    return {
        one.seed: one.curves[name]
        for one in outcomes
        if one.status == "finished" and name in one.curves
    }


def _curve(outcomes: list[Outcome], name: str, averaged: int) -> VariantCurve:
    finished = {seed: _thinned(line, averaged) for seed, line in _finished(outcomes, name).items()}
    lost = [
        _thinned(one.curves[name], averaged)
        for one in outcomes
        if one.status == "diverged" and name in one.curves
    ]
    return VariantCurve(band(finished), [line for line in lost if line[0]], averaged)


def _thinned(line: Line, count: int) -> Line:
    """The means of so many neighbours each, at the last of their steps. The rest at the end is left
    out: the mean of fewer is noisier, and would look like news.
    """
    steps, values = line
    if count == 1 or len(steps) < count:
        return line
    ends = range(count, len(steps) + 1, count)
    return [steps[end - 1] for end in ends], [
        sum(values[end - count : end]) / count for end in ends
    ]
