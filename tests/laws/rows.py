"""Rows that hold every pair of choices that is not refused. Finding them takes a minute, so they are kept in a file:
`python -m tests.laws.rows` writes it anew. Where parts or their faces are others than it says, they are sought again."""

import hashlib
import itertools
import json
import random
from functools import cache
from pathlib import Path

from covertable import make

from xformer_kit.laws.faces import TOWERS, Row, able, factors
from xformer_kit.laws.refusals import pairs, refused, with_pair

KEPT = Path(__file__).with_suffix(".json")
UNORDERED = {"mask": "full", "position": "none", "tower": TOWERS["encoder"]}  # three choices meet, which pairs may miss


@cache
def all_pairs() -> list[Row]:
    """Rows that cover every pair of levels that is not refused: those of the file, where it is about these choices."""
    kept = json.loads(KEPT.read_text())
    if kept["choices"] != digest():
        return sought()
    return [tuple(zip(factors(), levels, strict=True)) for levels in kept["rows"]]


def digest() -> str:
    """Of all choices and their faces."""
    return hashlib.sha256(json.dumps(factors(), sort_keys=True).encode()).hexdigest()[:16]


def sought() -> list[Row]:
    rows = [_first(**UNORDERED)]
    rows += [tuple((factor, row[factor]) for factor in factors()) for row in _covering()]
    missing, draw = set(pairs()) - refused().keys(), random.Random(0)
    rows = [row for row in rows if able(row)]
    for row in rows:
        missing -= set(itertools.combinations(row, 2))
    while missing:  # what stood in a row that is refused for three choices that meet
        pair = min(missing)
        row = next(row for row in (with_pair(pair, draw) for _ in itertools.count()) if able(row))
        missing -= set(itertools.combinations(row, 2))
        rows.append(row)
    return rows


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
