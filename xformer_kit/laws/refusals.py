"""Which pairs of choices are refused, and why? Found by trying each beside others, and written as a table."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache

from xformer_kit.laws.case import faults
from xformer_kit.laws.faces import LAYOUTS, TOWERS, Row, able, composed, drawn, factors
from xformer_kit.plan import KINDS

DRAWS = 400  # rows at random, whose pairs need not be tried one by one
HOMES = 4  # rows of each choice that another is tried in
OTHERS = 12  # rows at random beside those
Cell = tuple[str, int]  # a choice: factor, number of its level
Pair = Row  # two of them


def pairs() -> Iterator[Pair]:
    """Every pair of levels of two choices."""
    cells = [[(factor, level) for level in range(len(levels))] for factor, levels in factors().items()]
    for some, others in itertools.combinations(cells, 2):
        yield from itertools.product(some, others)


@cache
def refused() -> dict[Pair, tuple[str, ...]]:
    """Each pair that is refused in whatever composition, with the sentences that answer it where one of the two is at home."""
    draw, left = random.Random(0), dict.fromkeys(pairs())
    homes: dict[Cell, list[Row]] = {cell: [] for pair in left for cell in pair}
    for row in (drawn(draw) for _ in range(DRAWS)):
        if able(row):
            _lived_in(row, homes, left)
    for cell in [cell for cell, rows in homes.items() if not rows]:
        for row in _sought(cell, homes):
            if able(row):
                _lived_in(row, homes, left)
                break
    found: dict[Pair, tuple[str, ...]] = {}
    for pair in list(left):
        if pair not in left:
            continue
        for row in _candidates(pair, homes, draw):
            sentences = faults(composed(row))
            if not sentences:
                _lived_in(row, homes, left)
                found.pop(pair, None)
                break
            found.setdefault(pair, tuple(sentences))
    return found


def _lived_in(row: Row, homes: dict[Cell, list[Row]], left: dict[Pair, None]) -> None:
    """Take note of a row that is not refused."""
    for cell in row:
        if len(homes[cell]) < HOMES:
            homes[cell].append(row)
    for pair in itertools.combinations(row, 2):
        left.pop(pair, None)


def _sought(cell: Cell, homes: dict[Cell, list[Row]]) -> Iterator[Row]:
    """What a part asks of its neighbours: the first levels with this choice and another one changed, homes of others, and the
    first levels under every tower, mask, position and layout."""
    first = dict.fromkeys(factors(), 0) | dict([cell])
    for factor, known in factors().items():
        yield from (_row(first | {factor: level}) for level in range(len(known)) if factor != cell[0])
    for other in [row for rows in homes.values() for row in rows]:
        yield _row(dict(other) | dict([cell]))
    names = [factor for factor in ("tower", "mask", "position", "layout") if factor != cell[0]]
    for levels in itertools.product(*(range(len(factors()[factor])) for factor in names)):
        yield _row(first | dict(zip(names, levels, strict=True)))


def _candidates(pair: Pair, homes: dict[Cell, list[Row]], draw: random.Random) -> Iterator[Row]:
    """Rows that have the pair: homes of the one that the other moves into, by itself and with its tower, mixtures of two homes,
    and rows at random."""
    one, other = pair
    for cell in pair:
        yield from (_row(dict(home) | dict(pair)) for home in homes[cell])
    for cell, guest in ((one, other), (other, one)):
        towers = {dict(home)["tower"] for home in homes[guest]}
        moves = itertools.product(homes[cell], sorted(towers))
        yield from (_row(dict(home) | {"tower": tower} | dict(pair)) for home, tower in moves)
    for first, second in itertools.product(homes[one], homes[other]):
        mixed = {factor: draw.choice((dict(first), dict(second)))[factor] for factor in factors()}
        yield _row(mixed | dict(pair))
    yield from (with_pair(pair, draw) for _ in range(OTHERS))


def with_pair(pair: Pair, draw: random.Random) -> Row:
    """A row at random that has the pair."""
    return _row(dict(drawn(draw)) | dict(pair))


def _row(chosen: dict[str, int]) -> Row:
    return tuple((factor, chosen[factor]) for factor in factors())


def named(cell: tuple[str, int]) -> str:
    """A choice as a reader knows it: attn multi_head, layout parallel, tie_embeddings false."""
    factor, level = cell
    names = {"layout": list(LAYOUTS), "tower": list(TOWERS)}.get(factor)
    if names:
        return f"{factor} {names[level]}"
    value = factors()[factor][level]
    return f"{factor} {value['name'] if factor in KINDS else str(value).lower() if isinstance(value, bool) else level}"


def table() -> str:
    """The refused pairs in Markdown: part, part, reason, count of faces."""
    rows = Counter((named(a), named(b), sentences[0]) for (a, b), sentences in refused().items())
    total = sum(1 for _ in pairs())
    share = 1 - len(refused()) / total
    lines = [
        "# Pairs that are refused",
        "",
        f"Of {total:,} pairs of choices, parts in each of their faces, {total - len(refused()):,} ({share:.1%}) train and keep "
        "the laws. These are refused, each by the sentence that a user reads. Written by `python -m xformer_kit.laws "
        "--refusals`.",
        "",
        "| part | part | reason | count |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {a} | {b} | {reason.replace('|', chr(92) + '|')} | {n} |" for (a, b, reason), n in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"
