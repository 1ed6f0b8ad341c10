"""Effects of a factor averaged over the others, and interactions of two factors.

The seed is the block: a contrast is computed within every seed, and the contrasts of the seeds go
through the paired t, so that n seeds leave n - 1 degrees of freedom, however many runs there are
(Montgomery, Design and Analysis of Experiments, chapters 4 and 5; the error of a contrast is its
own interaction with the blocks).

A contrast uses the same combinations of the other factors in each of its levels and in each seed,
or else what the missing runs would have shown counts as an effect. Where runs are missing,
combinations and seeds are left out, those with the largest share missing first, until what is left
is whole; the figures say how much that is.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.study.statistics import PairedDifference, paired

Arm = tuple[Any, ...]  # levels of the factors in question


class Cell(NamedTuple):
    """One run: a level of every factor, a seed, and the figure that it reached. A run without one
    is left out.
    """

    levels: Mapping[str, Hashable]
    seed: int
    value: float


@dataclass(frozen=True)
class Effect:
    """A main effect (one factor) or an interaction (two).

    difference: of two levels, y(level) - y(baseline), or of four, [y(a, b) - y(a0, b)] - [y(a, b0)
    - y(a0, b0)], within a seed, averaged over the combinations of the other factors; `count` of it
    is the seeds used.
    method: matched      the levels are compared at equal combinations of the other factors
            additive     a fraction of the design, where no two runs differ only in this factor:
            least squares within each
                         seed, which takes it that no factors interact (in a fraction the two cannot
                         be told apart)
            not crossed  the runs do not show it
    """

    factors: tuple[str, ...]
    levels: Arm
    baseline: Arm
    difference: PairedDifference
    used: int  # combinations of the other factors; where additive, combinations of all
    combinations: int  # that were run at any of the levels in question
    seeds: int  # that were run
    method: str

    @property
    def names(self) -> list[str]:
        return [f"{factor}={x}" for factor, x in zip(self.factors, self.levels, strict=True)]

    @property
    def name(self) -> str:
        """placement=post, or placement=post with norm=rms."""
        return " with ".join(self.names)


def effects(cells: Iterable[Cell], baseline: Mapping[str, Hashable]) -> list[Effect]:
    """Of every factor and level against its baseline level the main effect, then of every pair of
    factors and levels the interaction. Their p-values are not corrected: `holm` does it for those
    that are read together.

    Raises ValueError where a run lacks a factor of the baseline or is there twice.
    """
    table = _table(cells, baseline)
    found = [_main(table, factor, x) for factor, levels in table.levels.items() for x in levels]
    for f, g in combinations(baseline, 2):
        zero = baseline[f], baseline[g]
        for x, y in product(table.levels[f], table.levels[g]):
            signs = {(x, y): 1, (zero[0], y): -1, (x, zero[1]): -1, zero: 1}
            found.append(_matched(table, (f, g), signs))
    return found


@dataclass(frozen=True)
class _Table:
    """The figure of every combination at every seed."""

    baseline: Mapping[str, Hashable]
    keys: list[Arm]  # combinations: levels in the order of the factors
    seeds: list[int]
    values: np.ndarray  # (combinations, seeds), NaN where a run is missing

    @property
    def levels(self) -> dict[str, list[Any]]:
        """Factor -> levels that are not the baseline's."""
        return {
            f: [x for x in dict.fromkeys(key[i] for key in self.keys) if x != zero]
            for i, (f, zero) in enumerate(self.baseline.items())
        }

    def difference(self, columns: list[int], contrasts: Iterable[Any]) -> PairedDifference:
        """The paired t of a contrast in each of these seeds."""
        each = dict(zip((self.seeds[j] for j in columns), map(float, contrasts), strict=True))
        # The figures' own size goes along, by which `paired` tells a difference from rounding.
        scale = max(abs(self.values[~np.isnan(self.values)]), default=0.0)
        return paired(dict.fromkeys(each, 0.0), each, scale=scale)


def _table(cells: Iterable[Cell], baseline: Mapping[str, Hashable]) -> _Table:
    rows: dict[Arm, dict[int, float]] = {}
    for cell in cells:
        if cell.levels.keys() != set(baseline):
            raise ValueError(
                f"A run has the factors {sorted(cell.levels)}; the baseline has {sorted(baseline)}."
            )
        row = rows.setdefault(tuple(cell.levels[f] for f in baseline), {})
        if cell.seed in row:
            raise ValueError(
                f"{dict(cell.levels)}, seed {cell.seed}: there are two figures of this run."
            )
        row[cell.seed] = cell.value
    seeds = sorted({seed for row in rows.values() for seed in row})
    values = [[row.get(seed, np.nan) for seed in seeds] for row in rows.values()]
    return _Table(baseline, list(rows), seeds, np.array(values).reshape(len(rows), len(seeds)))


def _main(table: _Table, factor: str, level: Any) -> Effect:
    matched = _matched(table, (factor,), {(level,): 1, (table.baseline[factor],): -1})
    return matched if matched.used else _additive(table, matched)


def _matched(table: _Table, chosen: tuple[str, ...], signs: dict[Arm, int]) -> Effect:
    at = [list(table.baseline).index(f) for f in chosen]
    others: dict[Arm, dict[Arm, np.ndarray]] = {}  # the other factors' levels -> arm -> by seed
    for key, row in zip(table.keys, table.values, strict=True):
        arm = tuple(key[i] for i in at)
        if arm in signs:
            others.setdefault(tuple(x for i, x in enumerate(key) if i not in at), {})[arm] = row
    missing = np.full(len(table.seeds), np.nan)
    contrast = np.array(
        [
            sum(sign * arms.get(arm, missing) for arm, sign in signs.items())
            for arms in others.values()
        ]
    ).reshape(len(others), len(missing))
    rows, columns = _whole(~np.isnan(contrast))
    return Effect(
        chosen,
        next(iter(signs)),
        tuple(signs)[-1],
        table.difference(columns, (contrast[rows, j].mean() for j in columns)),
        len(rows),
        len(others),
        len(table.seeds),
        "matched" if rows else "not crossed",
    )


def _additive(table: _Table, effect: Effect) -> Effect:
    """y = constant + one number per factor and level, by least squares within each seed."""
    rows, columns = _whole(~np.isnan(table.values))
    places = {factor: i for i, factor in enumerate(table.baseline)}
    terms = [(places[f], x) for f, levels in table.levels.items() for x in levels]
    X = np.array([[1.0, *(table.keys[r][i] == x for i, x in terms)] for r in rows]).reshape(
        len(rows), 1 + len(terms)
    )
    inverse = np.linalg.pinv(X)
    wanted = 1 + terms.index((places[effect.factors[0]], effect.levels[0]))
    if not np.allclose((inverse @ X)[wanted], np.eye(1 + len(terms))[wanted]):
        return effect  # these runs leave the number open
    return replace(
        effect,
        difference=table.difference(
            columns, (inverse[wanted] @ table.values[rows, j] for j in columns)
        ),
        used=len(rows),
        combinations=len(table.keys),
        method="additive",
    )


def _whole(there: np.ndarray) -> tuple[list[int], list[int]]:
    """Rows and columns between which nothing is missing: the row or column with the largest share
    missing goes first, the row where both are equal, so that seeds are kept.
    """
    rows, columns = list(range(there.shape[0])), list(range(there.shape[1]))
    while rows and columns and not (left := there[np.ix_(rows, columns)]).all():
        by_row, by_column = (~left).mean(1), (~left).mean(0)
        if by_row.max() >= by_column.max():
            rows.pop(int(by_row.argmax()))
        else:
            columns.pop(int(by_column.argmax()))
    return (rows, columns) if rows and columns else ([], [])
