"""Rows that contain every pair of choices that is not refused. Finding them takes ten minutes, so
they are stored in a file, which `python -m tests.laws.rows` writes, with docs/refusals.md. A test
fails if the components or their variants have changed since then.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from covertable import make

from tests.laws.pairs import (
    Choice,
    Pair,
    accepted_row,
    candidates_of_others,
    choices,
    pairs,
    refusal_table,
    search_refused_pairs,
)
from xformer_kit.laws.variants import STACKS, Row, factors, row_faults

STORED = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "refusals.md"
TRIES = 50  # random rows of which one is added
# Compositions of three choices, which rows of pairs may lack: nothing depends on the order of
# tokens.
UNORDERED = {"mask": "full", "position": "none"}
UNORDERED_STACKS = ("encoder", "encoder-decoder")


@cache
def all_pairs() -> list[Row]:
    """Returns the rows of the file, which contain every pair of levels that is not refused, if it
    was written for these choices.
    """
    rows = json.loads(STORED.read_text())["rows"]
    counts = [len(levels) for levels in factors().values()]
    return [
        tuple(zip(factors(), levels, strict=True))
        for levels in rows
        if len(levels) == len(counts) and all(map(int.__lt__, levels, counts))
    ]


@cache
def each_choice(times: int = 1) -> set[Row]:
    """Returns few of these rows that contain every choice at least so often."""
    found = set[Row]()
    for _ in range(times):
        left = [row for row in all_pairs() if row not in found]
        missing = {choice for row in all_pairs() for choice in row}
        while missing:
            row = max(left, key=lambda row: len(missing.intersection(row)))
            found.add(row)
            missing -= set(row)
    return found


def digest() -> str:
    """Returns a hash of all choices and their variants."""
    return hashlib.sha256(json.dumps(factors(), sort_keys=True).encode()).hexdigest()[:16]


def covering_rows() -> list[Row]:
    """Computes rows that contain every pair of levels that is not refused."""
    rows = [_first_levels(**UNORDERED, stack=STACKS[name]) for name in UNORDERED_STACKS]
    rows += [tuple((factor, row[factor]) for factor in factors()) for row in _covering_array()]
    rows = [row for row in rows if not row_faults(row)]
    missing = set(pairs()) - search_refused_pairs()
    for row in rows:
        missing -= set(itertools.combinations(row, 2))
    draw = random.Random(0)
    while missing:  # pairs of rows that are refused for three choices together
        tried = (_random_row_with(missing, draw) for _ in range(TRIES))
        row = max(
            (row for row in tried if row and not row_faults(row)),
            key=lambda row: len(missing.intersection(itertools.combinations(row, 2))),
            default=None,
        )
        if row:
            missing -= set(itertools.combinations(row, 2))
            rows.append(row)
    return with_accepted(rows)


def with_accepted(rows: list[Row]) -> list[Row]:
    """Returns the rows, with one for each pair that the search took for refused and that a
    composition of `refusal_table` has.
    """
    others = candidates_of_others(rows).items()
    found = (accepted_row(pair, tried, limit=0) for pair, tried in others)
    return [*rows, *dict.fromkeys(row for row in found if row)]


def _random_row_with(wanted: set[Pair], draw: random.Random) -> Row:
    """Returns a row with some of these pairs: each of a random order that fits those before it.
    Returns an empty row if no level of a factor fits.
    """
    chosen: dict[str, int] = {}
    some = draw.sample(sorted(wanted), draw.randint(1, len(wanted)))
    for added in (*some, *zip(draw.sample(choices(), len(choices())), strict=True)):
        extended = chosen | dict(added)
        if all(
            extended[factor] == level for factor, level in chosen.items()
        ) and search_refused_pairs().isdisjoint(itertools.combinations(_in_order(extended), 2)):
            chosen = extended
    return tuple(_in_order(chosen)) if chosen.keys() == factors().keys() else ()


def _in_order(chosen: dict[str, int]) -> Iterator[Choice]:
    return ((factor, chosen[factor]) for factor in factors() if factor in chosen)


def _covering_array() -> list[dict[str, int]]:
    """Returns rows that contain every pair, computed by covertable."""
    excluded: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for (one, level), (other, other_level) in search_refused_pairs():
        excluded.setdefault((one, other), set()).add((level, other_level))
    constraints = [
        {
            "operator": "fn",
            "requires": [*two],
            "evaluate": lambda row, two=two: tuple(row[f] for f in two) not in excluded[two],
        }
        for two in excluded
    ]
    levels = {factor: list(range(len(values))) for factor, values in factors().items()}
    return make(levels, constraints=constraints)


def _first_levels(**chosen: object) -> Row:
    """Returns the row of the first levels, except for factors that are chosen by name or value."""
    row = dict.fromkeys(factors(), 0)
    for factor, level in chosen.items():
        values = factors()[factor]
        row[factor] = next(i for i, v in enumerate(values) if v == level or v.get("name") == level)
    return tuple(row.items())


def write(rows: list[Row]) -> None:
    """Writes the rows and the page of refusals."""
    lines = ",\n".join(json.dumps([level for _, level in row]) for row in rows)
    STORED.write_text(f'{{"choices": "{digest()}", "rows": [\n{lines}\n]}}\n')
    PAGE.write_text(refusal_table(rows))


if __name__ == "__main__":
    write(covering_rows())
