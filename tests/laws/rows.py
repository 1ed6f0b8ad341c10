"""Rows that hold every pair of choices that is not refused. Finding them takes minutes, so they are
kept in a file: `python -m tests.laws.rows` writes it anew. Where components or their faces are
others than it says, they are sought again.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from covertable import make

from xformer_kit.laws.refusals import Pair, pairs, refused
from xformer_kit.laws.variants import STACKS, Row, factors, wrong

KEPT = Path(__file__).with_suffix(".json")
TRIES = 50  # rows that are drawn for one that is kept
# Three choices meet, which pairs may miss.
UNORDERED = {"mask": "full", "position": "none"}
FIRST = ("encoder", "encoder-decoder")  # stacks of which nothing tells the order of tokens


@cache
def all_pairs() -> list[Row]:
    """Rows that cover every pair of levels that is not refused: those of the file, where it is
    about these choices.
    """
    kept = json.loads(KEPT.read_text())
    if kept["choices"] != digest():
        return sought()
    return [tuple(zip(factors(), levels, strict=True)) for levels in kept["rows"]]


@cache
def each_choice() -> set[Row]:
    """Few of these rows that hold every choice, for laws that are too slow for all pairs."""
    missing, found = {cell for row in all_pairs() for cell in row}, set[Row]()
    while missing:
        row = max(all_pairs(), key=lambda row: len(missing.intersection(row)))
        found.add(row)
        missing -= set(row)
    return found


def digest() -> str:
    """Of all choices and their faces."""
    return hashlib.sha256(json.dumps(factors(), sort_keys=True).encode()).hexdigest()[:16]


def sought() -> list[Row]:
    rows = [_first(**UNORDERED, stack=STACKS[name]) for name in FIRST]
    rows += [tuple((factor, row[factor]) for factor in factors()) for row in _covering()]
    rows, missing = [row for row in rows if not wrong(row)], set(pairs()) - refused().keys()
    for row in rows:
        missing -= set(itertools.combinations(row, 2))
    draw = random.Random(0)
    while missing:  # what stood in a row that is refused for three choices that meet
        held = (
            row for row in (_holding(missing, draw) for _ in range(TRIES)) if row and not wrong(row)
        )
        row = max(
            held,
            key=lambda row: len(missing.intersection(itertools.combinations(row, 2))),
            default=None,
        )
        if row:
            missing -= set(itertools.combinations(row, 2))
            rows.append(row)
    return rows


def _holding(wanted: set[Pair], draw: random.Random) -> Row:
    """A row with some of these pairs, as many as can stand beside each other in the order in which
    they are drawn; an empty one where no level of some choice can stand beside them.
    """
    chosen: dict[str, int] = {}
    cells = [
        (factor, level) for factor, levels in factors().items() for level in range(len(levels))
    ]
    some = draw.sample(sorted(wanted), draw.randint(1, len(wanted)))
    for more in (*some, *zip(draw.sample(cells, len(cells)), strict=True)):
        laid = chosen | dict(more)
        if all(
            laid[factor] == level for factor, level in chosen.items()
        ) and refused().keys().isdisjoint(_pairs(laid)):
            chosen = laid
    return tuple(_cells(chosen)) if chosen.keys() == factors().keys() else ()


def _cells(chosen: dict[str, int]) -> Iterator[tuple[str, int]]:
    return ((factor, chosen[factor]) for factor in factors() if factor in chosen)


def _pairs(chosen: dict[str, int]) -> Iterator[Pair]:
    return itertools.combinations(_cells(chosen), 2)


def _covering() -> list[dict[str, int]]:
    without: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for (one, at), (other, there) in refused():
        without.setdefault((one, other), set()).add((at, there))
    constraints = [
        {
            "operator": "fn",
            "requires": [*two],
            "evaluate": lambda row, two=two: tuple(row[f] for f in two) not in without[two],
        }
        for two in without
    ]
    levels = {factor: list(range(len(values))) for factor, values in factors().items()}
    return make(levels, constraints=constraints)


def _first(**chosen: object) -> Row:
    """The row of the first levels, but for those that are chosen by name or value."""
    row = dict.fromkeys(factors(), 0)
    for factor, level in chosen.items():
        values = factors()[factor]
        row[factor] = next(i for i, v in enumerate(values) if v == level or v.get("name") == level)
    return tuple(row.items())


if __name__ == "__main__":
    lines = ",\n".join(json.dumps([level for _, level in row]) for row in sought())
    KEPT.write_text(f'{{"choices": "{digest()}", "rows": [\n{lines}\n]}}\n')
