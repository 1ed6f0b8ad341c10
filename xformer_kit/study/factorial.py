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
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.study.nodes import Node
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


def effects(
    cells: Iterable[Cell], baseline: Mapping[str, Hashable], level: float = 0.95
) -> list[Effect]:
    """Of every factor and level against its baseline level the main effect, then of every pair of
    factors and levels the interaction. Their p-values are not corrected: `holm` does it for those
    that are read together.

    Raises ValueError where a run lacks a factor of the baseline or is there twice.
    """
    factors = tuple(baseline)
    table = _table(cells, factors)
    levels = {
        f: [x for x in dict.fromkeys(key[i] for key in table) if x != baseline[f]]
        for i, f in enumerate(factors)
    }
    found = [_main(table, factors, f, x, baseline, level) for f in factors for x in levels[f]]
    for f, g in combinations(factors, 2):
        for x in levels[f]:
            for y in levels[g]:
                zero = baseline[f], baseline[g]
                signs = {(x, y): 1, (zero[0], y): -1, (x, zero[1]): -1, zero: 1}
                found.append(_matched(table, factors, (f, g), signs, level))
    return found


Table = dict[Arm, dict[int, float]]  # levels in the order of the factors -> seed -> value


def _table(cells: Iterable[Cell], factors: tuple[str, ...]) -> Table:
    table: Table = {}
    for cell in cells:
        if cell.levels.keys() != set(factors):
            raise ValueError(
                f"A run has the factors {sorted(cell.levels)}; the baseline has {sorted(factors)}."
            )
        row = table.setdefault(tuple(cell.levels[f] for f in factors), {})
        if cell.seed in row:
            raise ValueError(
                f"{dict(cell.levels)}, seed {cell.seed}: there are two figures of this run."
            )
        row[cell.seed] = cell.value
    return table


def _main(
    table: Table,
    factors: tuple[str, ...],
    factor: str,
    level: Any,
    baseline: Node,
    confidence: float,
) -> Effect:
    signs = {(level,): 1, (baseline[factor],): -1}
    matched = _matched(table, factors, (factor,), signs, confidence)
    return matched if matched.used else _additive(table, factors, matched, baseline, confidence)


def _matched(
    table: Table,
    factors: tuple[str, ...],
    chosen: tuple[str, ...],
    signs: dict[Arm, int],
    confidence: float,
) -> Effect:
    at = [factors.index(f) for f in chosen]
    others: dict[
        Arm, dict[Arm, dict[int, float]]
    ] = {}  # the other factors' levels -> arm -> seed -> value
    for key, row in table.items():
        arm = tuple(key[i] for i in at)
        if arm in signs:
            rest = tuple(x for i, x in enumerate(key) if i not in at)
            others.setdefault(rest, {})[arm] = row
    seeds = sorted({seed for row in table.values() for seed in row})
    contrast = np.full((len(others), len(seeds)), np.nan)
    for i, arms in enumerate(others.values()):
        for j, seed in enumerate(seeds):
            if all(seed in arms.get(arm, ()) for arm in signs):
                contrast[i, j] = sum(sign * arms[arm][seed] for arm, sign in signs.items())
    rows, columns = _whole(~np.isnan(contrast))
    scale = max((abs(value) for row in table.values() for value in row.values()), default=0.0)
    each = {seeds[j]: contrast[rows, j].mean() for j in columns}
    levels, zero = next(iter(signs)), tuple(signs)[-1]
    method = "matched" if rows else "not crossed"
    difference = _of_contrasts(each, scale, confidence)
    return Effect(chosen, levels, zero, difference, len(rows), len(others), len(seeds), method)


def _additive(
    table: Table,
    factors: tuple[str, ...],
    effect: Effect,
    baseline: Node,
    confidence: float,
) -> Effect:
    """y = constant + one number per factor and level, by least squares within each seed."""
    seeds, keys = sorted({seed for row in table.values() for seed in row}), list(table)
    rows, columns = _whole(
        np.array([[seed in table[key] for seed in seeds] for key in keys]).reshape(len(keys), -1)
    )
    terms = [
        (i, x)
        for i, f in enumerate(factors)
        for x in dict.fromkeys(key[i] for key in keys)
        if x != baseline[f]
    ]
    X = np.array([[1.0, *(keys[r][i] == x for i, x in terms)] for r in rows]).reshape(
        len(rows), 1 + len(terms)
    )
    inverse = np.linalg.pinv(X)
    wanted = 1 + terms.index((factors.index(effect.factors[0]), effect.levels[0]))
    if not np.allclose((inverse @ X)[wanted], np.eye(1 + len(terms))[wanted]):
        return effect  # these runs leave the number open
    each = {
        seeds[j]: float(inverse[wanted] @ [table[keys[r]][seeds[j]] for r in rows]) for j in columns
    }
    scale = max(abs(value) for row in table.values() for value in row.values())
    difference = _of_contrasts(each, scale, confidence)
    return replace(
        effect, difference=difference, used=len(rows), combinations=len(keys), method="additive"
    )


def _of_contrasts(each: dict[int, float], scale: float, confidence: float) -> PairedDifference:
    # The figures' own size goes along, by which `paired` tells a difference from rounding.
    return paired(dict.fromkeys(each, 0.0), each, confidence, scale=scale)


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
