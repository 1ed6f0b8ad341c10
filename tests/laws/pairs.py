"""The pairs of choices that are refused in every composition, and the table of them.

A pair is refused if no accepted row with it is found. The search takes about a second for each
refused pair.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from xformer_kit.config.saved.difference import as_literal
from xformer_kit.laws.variants import NAMED_FACTORS, Row, factors, random_row, row_faults
from xformer_kit.plan import KINDS
from xformer_kit.registry import Fault

DRAWS = 400  # random rows, which cover many pairs at once
# Largest number of rows that are changed to find an accepted one. From random rows, several choices
# have to change together with a kernel. From the stored rows without a block of 40, for each block:
# of 4,396 missing pairs 4,381 are accepted in a candidate, 13 after one change, 1 after three, and
# 1 is not found.
CHANGED, CHANGED_WITH_KERNEL_FROM_RANDOM = 3, 12
Choice = tuple[str, int]  # factor, index of its level
Pair = Row  # two of them


def pairs() -> Iterator[Pair]:
    """Returns every pair of levels of two factors."""
    return (pair for pair in itertools.combinations(choices(), 2) if pair[0][0] != pair[1][0])


def choices() -> list[Choice]:
    """Returns every level of every factor."""
    return [(factor, level) for factor, levels in factors().items() for level in range(len(levels))]


class _Accepted:
    """The accepted rows that were found, and the pairs that are in none of them yet."""

    def __init__(self) -> None:
        self.missing = dict.fromkeys(pairs())
        # At most one row for each choice and stack.
        self.rows: dict[Choice, list[Row]] = {
            choice: [] for pair in self.missing for choice in pair
        }

    def add(self, row: Row) -> None:
        """Records an accepted row."""
        for choice in row:
            if all(dict(row)["stack"] != dict(other)["stack"] for other in self.rows[choice]):
                self.rows[choice].append(row)
        for pair in itertools.combinations(row, 2):
            self.missing.pop(pair, None)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "_Accepted":
        """Returns the record of rows that are known to be accepted."""
        accepted = cls()
        for row in rows:
            accepted.add(row)
        return accepted

    def add_first(self, rows: Iterator[Row]) -> None:
        """Records the first of these rows that is accepted."""
        if row := next((row for row in rows if not row_faults(row)), None):
            self.add(row)

    def candidates(self, pair: Pair) -> list[Row]:
        """Returns the rows of each of the two choices with the other set too; if there are none,
        the first levels with both.
        """
        rows = [row for choice in pair for row in self.rows[choice]] or [_first_levels()]
        return list(dict.fromkeys(_row(dict(row) | dict(pair)) for row in rows))


@cache
def search_refused_pairs() -> set[Pair]:
    """Returns the pairs that are refused in every composition."""
    draw, accepted = random.Random(0), _Accepted()
    for row in (random_row(draw) for _ in range(DRAWS)):
        if not row_faults(row):
            accepted.add(row)
    for choice in [choice for choice, rows in accepted.rows.items() if not rows]:
        accepted.add_first(_rows_with(choice, accepted))
    refused: set[Pair] = set()
    for pair in list(accepted.missing):
        if pair not in accepted.missing:
            continue
        limit = CHANGED_WITH_KERNEL_FROM_RANDOM if "kernel" in dict(pair) else CHANGED
        if row := accepted_row(pair, accepted.candidates(pair), limit):
            accepted.add(row)
        else:
            refused.add(pair)
    return refused


def candidates_of_others(rows: Iterable[Row]) -> dict[Pair, list[Row]]:
    """Returns, for each pair that is in none of these accepted rows, rows that differ from accepted
    ones only in the pair.
    """
    accepted = _Accepted.of(rows)
    return {pair: accepted.candidates(pair) for pair in accepted.missing}


def accepted_row(pair: Pair, tried: list[Row], limit: int = CHANGED) -> Row | None:
    """Returns an accepted row with the pair, found by changing at most `limit` of its candidates;
    None if there is none.
    """
    accepted = next((row for row in tried if not faults_of(row)), None)
    return accepted or _repaired(pair, tried, limit)


@cache
def faults_of(row: Row) -> tuple[Fault, ...]:
    """Returns why a row is refused; cached, because many rows occur for several pairs."""
    return tuple(row_faults(row))


def _repaired(pair: Pair, tried: list[Row], limit: int) -> Row | None:
    """Returns a row that is not refused, found by changing one choice that a fault names at a time,
    in rows with the fewest faults first. None if all rows that were tried share a fault, or if the
    search ends without one.
    """
    if set.intersection(*(set(faults_of(row)) for row in tried)):
        return None
    order = itertools.count()  # orders rows with equally many faults
    queue = sorted((len(faults_of(row)), next(order), row) for row in tried)
    changed: set[tuple[int, tuple[str, ...]]] = set()
    while queue and len(changed) < limit:
        count, _, row = heapq.heappop(queue)
        if (group := _group(row)) in changed:
            continue
        changed.add(group)
        for other in _changed_rows(row, pair):
            faults = faults_of(other)
            if not faults:
                return other
            if len(faults) <= count:
                heapq.heappush(queue, (len(faults), next(order), other))
    return None


def _group(row: Row) -> tuple[int, tuple[str, ...]]:
    """Returns the stack of a row and the config paths of its faults: of rows that agree in both,
    one is changed.
    """
    return dict(row)["stack"], tuple(fault.path for fault in faults_of(row))


def _changed_rows(row: Row, pair: Pair) -> Iterator[Row]:
    """Yields the row with another level of one choice: of its stack, of its layout, or of a choice
    on which its faults depend, that is, the first other level has other faults.
    """
    for factor, levels in factors().items():
        others = [_row(dict(row) | {factor: level}) for level in range(len(levels))]
        others.remove(row)
        depends = factor in ("stack", "layout") or faults_of(others[0]) != faults_of(row)
        if factor not in dict(pair) and depends:
            yield from others


def _rows_with(choice: Choice, accepted: _Accepted) -> Iterator[Row]:
    """Yields rows in which a choice may be accepted: the first levels with this choice and one
    other changed, accepted rows of other choices, and the first levels with every stack, mask,
    position and layout.
    """
    first = dict([*_first_levels(), choice])
    yield from (_row(first | dict([other])) for other in choices() if other[0] != choice[0])
    for row in [row for rows in accepted.rows.values() for row in rows]:
        yield _row(dict([*row, choice]))
    names = [factor for factor in ("stack", "mask", "position", "layout") if factor != choice[0]]
    for levels in itertools.product(*(range(len(factors()[factor])) for factor in names)):
        yield _row(first | dict(zip(names, levels, strict=True)))


def _first_levels() -> Row:
    return tuple((factor, 0) for factor in factors())


def _row(chosen: dict[str, int]) -> Row:
    return tuple((factor, chosen[factor]) for factor in factors())


def choice_label(choice: Choice) -> str:
    """Returns the label of a choice: attn multi_head, layout parallel, tie_embeddings false."""
    factor, level = choice
    value: Any = factors()[factor][level]
    if factor in NAMED_FACTORS:
        value = list(NAMED_FACTORS[factor])[level]
    elif not isinstance(value, bool):
        value = value["name"] if factor in KINDS else level
    return f"{factor} {as_literal(value)}"


def reason(tried: list[Row]) -> Fault:
    """Returns the most frequent fault of these rows, at its shortest path."""
    faults = [fault for row in tried for fault in faults_of(row)]
    counts = Counter(fault.rule for fault in faults)
    return max(faults, key=lambda fault: (counts[fault.rule], -len(fault.path)))


def refusal_table(rows: Iterable[Row]) -> str:
    """Returns the pairs that are in none of these rows, in Markdown: component, component, reason,
    count of variants.
    """
    refused = {pair: reason(tried) for pair, tried in candidates_of_others(rows).items()}
    counts = Counter(
        (choice_label(a), choice_label(b), str(fault)) for (a, b), fault in refused.items()
    )
    total = sum(1 for _ in pairs())
    accepted = total - len(refused)
    lines = [
        "# Pairs that are refused",
        "",
        (
            f"Of {total:,} pairs of choices, each component with each of its variants,"
            f" {accepted:,} ({accepted / total:.1%}) train and keep the laws. The table lists the"
            " others with the message that a user reads. Written by"
            " `python -m tests.laws.rows`."
        ),
        "",
        "| component | component | reason | count |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {a} | {b} | {reason.replace('|', chr(92) + '|')} | {n} |"
        for (a, b, reason), n in sorted(counts.items())
    ]
    return "\n".join(lines) + "\n"
