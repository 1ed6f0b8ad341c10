"""Main effects of factors, averaged over the other factors, and interactions of two factors.

The seed is the block: a contrast is computed within every seed, and the paired t test is applied to
the contrasts of the seeds. So n seeds give n - 1 degrees of freedom, independent of the number of
runs (Montgomery, Design and Analysis of Experiments, chapters 4 and 5; the error of a contrast is
its own interaction with the blocks).

A contrast uses the same combinations of the other factors in each of its levels and in each seed;
otherwise missing runs would bias it. If runs are missing, combinations and seeds are left out,
those with the largest share missing first, until no run is missing. `Effect.used` and
`Effect.difference.count` are the numbers that remain.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.study.statistics import Difference, paired_difference

Combination = tuple[Any, ...]  # one level of each of some factors


class Cell(NamedTuple):
    """One run: a level of every factor, a seed, and the value of the metric."""

    levels: Mapping[str, Hashable]
    seed: int
    value: float


@dataclass(frozen=True)
class Effect:
    """A main effect (one factor) or an interaction (two factors).

    difference: y(level) - y(baseline) of a main effect, [y(a, b) - y(a0, b)] - [y(a, b0) -
    y(a0, b0)] of an interaction, within a seed, averaged over the combinations of the other
    factors. Its `count` is the number of seeds used.
    method: matched      levels are compared at equal combinations of the other factors
            additive     no two runs differ in this factor only (a fraction of the design): least
                         squares within each seed, assuming that no factors interact (in a fraction
                         main effects and interactions are aliased)
            not crossed  the runs do not identify the effect
    """

    factors: tuple[str, ...]
    levels: Combination
    baseline: Combination
    difference: Difference
    used: int  # combinations of the other factors; if additive, combinations of all factors
    combinations: int  # combinations that were run at any of the levels
    seeds: int  # seeds that were run
    method: str

    @property
    def names(self) -> list[str]:
        return [f"{factor}={x}" for factor, x in zip(self.factors, self.levels, strict=True)]

    @property
    def name(self) -> str:
        """placement=post, or placement=post with norm=rms."""
        return " with ".join(self.names)


def factorial_effects(cells: Iterable[Cell], baseline: Mapping[str, Hashable]) -> list[Effect]:
    """The main effect of every level of every factor against its baseline level, then the
    interaction of every pair of levels of two factors. p-values are not corrected; see `holm`.
    """
    table = _table(cells, baseline)
    found = []
    for factor, levels in table.levels.items():
        for x in levels:
            signs: dict[Combination, int] = {(x,): 1, (baseline[factor],): -1}
            matched = _matched_effect(table, (factor,), signs)
            # matched if any two runs differ in this factor only
            found.append(matched if matched.used else _additive_effect(table, matched))
    for f, g in combinations(baseline, 2):
        zero = baseline[f], baseline[g]
        for x, y in product(table.levels[f], table.levels[g]):
            signs = {(x, y): 1, (zero[0], y): -1, (x, zero[1]): -1, zero: 1}
            found.append(_matched_effect(table, (f, g), signs))
    return found


@dataclass(frozen=True)
class _Table:
    """The value of every combination at every seed."""

    baseline: Mapping[str, Hashable]
    keys: list[Combination]  # levels in the order of the factors
    seeds: list[int]
    values: np.ndarray  # (combinations, seeds), NaN if a run is missing

    @property
    def levels(self) -> dict[str, list[Any]]:
        """Factor -> levels that are not the baseline's."""
        return {
            f: [x for x in dict.fromkeys(key[i] for key in self.keys) if x != zero]
            for i, (f, zero) in enumerate(self.baseline.items())
        }

    def difference(self, columns: list[int], contrasts: Iterable[Any]) -> Difference:
        """The paired t test of the contrasts of these seeds."""
        each = dict(zip((self.seeds[j] for j in columns), map(float, contrasts), strict=True))
        # The scale of the values, with which `paired_difference` distinguishes a difference from
        # rounding.
        scale = max(abs(self.values[~np.isnan(self.values)]), default=0.0)
        return paired_difference(dict.fromkeys(each, 0.0), each, scale=scale)


def _table(cells: Iterable[Cell], baseline: Mapping[str, Hashable]) -> _Table:
    """The runs as a table."""
    rows: dict[Combination, dict[int, float]] = {}
    for cell in cells:
        rows.setdefault(tuple(cell.levels[f] for f in baseline), {})[cell.seed] = cell.value
    seeds = sorted({seed for row in rows.values() for seed in row})
    values = [[row.get(seed, np.nan) for seed in seeds] for row in rows.values()]
    return _Table(baseline, list(rows), seeds, np.array(values).reshape(len(rows), len(seeds)))


def _matched_effect(
    table: _Table, chosen: tuple[str, ...], signs: dict[Combination, int]
) -> Effect:
    """The contrast with these signs of combinations of the chosen factors."""
    positions = [list(table.baseline).index(f) for f in chosen]
    # levels of the other factors -> levels of the chosen factors -> values by seed
    groups: dict[Combination, dict[Combination, np.ndarray]] = {}
    for key, row in zip(table.keys, table.values, strict=True):
        levels = tuple(key[i] for i in positions)
        if levels in signs:
            others = tuple(x for i, x in enumerate(key) if i not in positions)
            groups.setdefault(others, {})[levels] = row
    missing = np.full(len(table.seeds), np.nan)
    contrast = np.array(
        [
            sum(sign * group.get(levels, missing) for levels, sign in signs.items())
            for group in groups.values()
        ]
    ).reshape(len(groups), len(missing))
    rows, columns = _without_missing(~np.isnan(contrast))
    return Effect(
        chosen,
        next(iter(signs)),
        tuple(signs)[-1],
        table.difference(columns, (contrast[rows, j].mean() for j in columns)),
        len(rows),
        len(groups),
        len(table.seeds),
        "matched" if rows else "not crossed",
    )


def _additive_effect(table: _Table, effect: Effect) -> Effect:
    """y = constant + one number per factor and level, by least squares within each seed."""
    rows, columns = _without_missing(~np.isnan(table.values))
    places = {factor: i for i, factor in enumerate(table.baseline)}
    terms = [(places[f], x) for f, levels in table.levels.items() for x in levels]
    X = np.array([[1.0, *(table.keys[r][i] == x for i, x in terms)] for r in rows]).reshape(
        len(rows), 1 + len(terms)
    )
    inverse = np.linalg.pinv(X)
    wanted = 1 + terms.index((places[effect.factors[0]], effect.levels[0]))
    if not np.allclose((inverse @ X)[wanted], np.eye(1 + len(terms))[wanted]):
        return effect  # the runs do not identify this coefficient
    return replace(
        effect,
        difference=table.difference(
            columns, (inverse[wanted] @ table.values[rows, j] for j in columns)
        ),
        used=len(rows),
        combinations=len(table.keys),
        method="additive",
    )


def _without_missing(present: np.ndarray) -> tuple[list[int], list[int]]:
    """Rows and columns without missing entries. The row or column with the largest missing share is
    removed first; on a tie the row, to keep seeds.
    """
    rows, columns = list(range(present.shape[0])), list(range(present.shape[1]))
    while rows and columns and not (remaining := present[np.ix_(rows, columns)]).all():
        by_row, by_column = (~remaining).mean(1), (~remaining).mean(0)
        if by_row.max() >= by_column.max():
            rows.pop(int(by_row.argmax()))
        else:
            columns.pop(int(by_column.argmax()))
    return (rows, columns) if rows and columns else ([], [])
