"""The pairs of choices that are refused in every composition, and the table of them."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from xformer_kit.config.difference import as_literal
from xformer_kit.laws.variants import NAMED, Row, drawn, factors, wrong
from xformer_kit.plan import KINDS
from xformer_kit.registry import Fault

DRAWS = 400  # random rows, which cover many pairs at once
# Largest number of rows that are changed to find an accepted one; with a kernel several choices
# have to change together.
CHANGED, OF_KERNELS = 3, 12
Cell = tuple[str, int]  # a choice: factor, index of its level
Pair = Row  # two of them


def pairs() -> Iterator[Pair]:
    """Returns every pair of levels of two factors."""
    return (two for two in itertools.combinations(cells(), 2) if two[0][0] != two[1][0])


def cells() -> list[Cell]:
    return [(factor, level) for factor, levels in factors().items() for level in range(len(levels))]


@cache
def refused() -> dict[Pair, tuple[Fault, ...]]:
    """Returns each pair that is refused in every composition, with the faults of one composition
    that is accepted without the pair.
    """
    draw, left = random.Random(0), dict.fromkeys(pairs())
    homes: dict[Cell, list[Row]] = {cell: [] for pair in left for cell in pair}
    for row in (drawn(draw) for _ in range(DRAWS)):
        if not wrong(row):
            _lived_in(row, homes, left)
    for cell in [cell for cell, rows in homes.items() if not rows]:
        for row in _sought(cell, homes):
            if not wrong(row):
                _lived_in(row, homes, left)
                break
    found: dict[Pair, tuple[Fault, ...]] = {}
    for pair in list(left):
        if pair not in left:
            continue
        tried = list(_candidates(pair, homes))
        able = next((row for row in tried if not _wrong(row)), None) or _mended(pair, tried)
        if able:
            _lived_in(able, homes, left)
        else:
            found[pair] = _wrong(tried[0])
    return found


@cache
def _wrong(row: Row) -> tuple[Fault, ...]:
    """Returns why a row is refused; cached, because a fifth of the rows occur for several pairs."""
    return tuple(wrong(row))


def _mended(pair: Pair, tried: list[Row]) -> Row | None:
    """Returns a row that is not refused, found by changing one choice that a fault names at a time,
    in rows with the fewest faults first. None if all rows that were tried share a fault, or if the
    search ends without one.
    """
    if set.intersection(*(set(_wrong(row)) for row in tried)):
        return None
    limit = OF_KERNELS if "kernel" in dict(pair) else CHANGED
    order = itertools.count()  # orders rows with equally many faults
    waiting = sorted((len(_wrong(row)), next(order), row) for row in tried)
    changed: set[tuple[int, tuple[str, ...]]] = set()
    while waiting and len(changed) < limit:
        fewest, _, row = heapq.heappop(waiting)
        if (kind := _kind(row)) in changed:
            continue
        changed.add(kind)
        for other in _changed(row, pair):
            found = _wrong(other)
            if not found:
                return other
            if len(found) <= fewest:
                heapq.heappush(waiting, (len(found), next(order), other))
    return None


def _kind(row: Row) -> tuple[int, tuple[str, ...]]:
    """Returns the stack of a row and the config paths of its faults: rows that agree in both are
    changed once.
    """
    return dict(row)["stack"], tuple(fault.path for fault in _wrong(row))


def _changed(row: Row, pair: Pair) -> Iterator[Row]:
    """Yields the row with another level of one choice: of its stack, of its layout, or of a choice
    on which its faults depend, that is, the first other level has other faults.
    """
    for factor, levels in factors().items():
        others = [_row(dict(row) | {factor: level}) for level in range(len(levels))]
        others.remove(row)
        depends = factor in ("stack", "layout") or _wrong(others[0]) != _wrong(row)
        if factor not in dict(pair) and depends:
            yield from others


def _lived_in(row: Row, homes: dict[Cell, list[Row]], left: dict[Pair, None]) -> None:
    """Records a row that is not refused: as home of its choices that have none with this stack, and
    removes its pairs from `left`.
    """
    for cell in row:
        if dict(row)["stack"] not in {dict(home)["stack"] for home in homes[cell]}:
            homes[cell].append(row)
    for pair in itertools.combinations(row, 2):
        left.pop(pair, None)


def _sought(cell: Cell, homes: dict[Cell, list[Row]]) -> Iterator[Row]:
    """Yields rows in which a choice may be accepted: the first levels with this choice and one
    other changed, homes of other choices, and the first levels with every stack, mask, position and
    layout.
    """
    first = dict.fromkeys(factors(), 0) | dict([cell])
    yield from (_row(first | dict([other])) for other in cells() if other[0] != cell[0])
    for other in [row for rows in homes.values() for row in rows]:
        yield _row(dict(other) | dict([cell]))
    names = [factor for factor in ("stack", "mask", "position", "layout") if factor != cell[0]]
    for levels in itertools.product(*(range(len(factors()[factor])) for factor in names)):
        yield _row(first | dict(zip(names, levels, strict=True)))


def _candidates(pair: Pair, homes: dict[Cell, list[Row]]) -> Iterator[Row]:
    """Yields the homes of each of the two with the other set too; if they have none, the first
    levels.
    """
    first = _row(dict.fromkeys(factors(), 0))
    rows = [home for cell in pair for home in homes[cell]] or [first]
    yield from dict.fromkeys(_row(dict(row) | dict(pair)) for row in rows)


def _row(chosen: dict[str, int]) -> Row:
    return tuple((factor, chosen[factor]) for factor in factors())


def named(cell: tuple[str, int]) -> str:
    """Returns the label of a choice: attn multi_head, layout parallel, tie_embeddings false."""
    factor, level = cell
    value: Any = factors()[factor][level]
    if factor in NAMED:
        value = list(NAMED[factor])[level]
    elif not isinstance(value, bool):
        value = value["name"] if factor in KINDS else level
    return f"{factor} {as_literal(value)}"


def table() -> str:
    """Returns the refused pairs in Markdown: component, component, reason, count of variants."""
    rows = Counter((named(a), named(b), str(faults[0])) for (a, b), faults in refused().items())
    total = sum(1 for _ in pairs())
    able = total - len(refused())
    lines = [
        "# Pairs that are refused",
        "",
        (
            f"Of {total:,} pairs of choices, components in each of their faces,"
            f" {able:,} ({able / total:.1%}) train and keep the laws. These are refused,"
            " each by the sentence that a user reads. Written by `python -m xformer_kit.laws"
            " --refusals`."
        ),
        "",
        "| component | component | reason | count |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {a} | {b} | {reason.replace('|', chr(92) + '|')} | {n} |"
        for (a, b, reason), n in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"
