"""Queries by blocks, each against the slice of keys that its band lets it see.

What a mask hides at both ends of the keys is then never computed, and no table of all pairs of
tokens is built.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from xformer_kit.kernel.base import bias
from xformer_kit.model.tokens import AttentionContext


class QueryBlock(NamedTuple):
    """Queries from `start` to `stop` beside keys from `first` to `last`, both without the end."""

    start: int
    stop: int
    first: int
    last: int
    # the last key is seen only by the last query, the one before by the last two, and so on
    causal: bool = False
    # True where seen, or a bias that is -inf where not; broadcasts to (b, h, queries, keys)
    table: Tensor | None = None

    @property
    def keys(self) -> int:
        return self.last - self.first


def cut(
    context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype, size: int
) -> tuple[QueryBlock, ...]:
    """The blocks of a context whose mask is a band, `size` queries each. Tables that are equal are
    one tensor.
    """
    left, right = context.mask.band()
    queries, keys = context.query.length, context.key.length
    ahead = keys - queries  # keys before the first query: queries are the last of the keys
    alike = (
        context.key.real is None
        and context.key.document is None
        and (not biased or _shifts(context))
    )
    made: list[QueryBlock] = []
    tables: dict[tuple[int, ...], Tensor | None] = {}
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        first = 0 if left == math.inf else max(0, start + ahead - int(left))
        last = keys if right == math.inf else min(keys, stop + ahead + int(right))
        nearest, farthest = (
            start + ahead - (last - 1),
            stop - 1 + ahead - first,
        )  # distances, query - key
        covered = farthest <= left and nearest >= -right
        square = right == 0 and farthest <= left and stop - start == last - first
        if square and alike and not biased:
            made.append(QueryBlock(start, stop, first, last, causal=stop - start > 1))
            continue
        shape = (farthest, stop - start, last - first)
        if not alike or shape not in tables:
            part = context.part(slice(start, stop), slice(first, last))
            tables[shape] = table(part, heads, biased, dtype, covered)
        made.append(QueryBlock(start, stop, first, last, table=tables[shape]))
    return tuple(made)


def table(
    context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype, covered: bool
) -> Tensor | None:
    """What is seen, or the position's bias with -inf where it is not; None: all is seen, without a
    bias. `covered`: the mask shows all.
    """
    seen = context.seen(heads, covered)
    if not biased:
        return seen
    added = bias(context, heads).to(dtype)
    return added if seen is None else torch.where(seen, added, -math.inf)


def _shifts(context: AttentionContext) -> bool:
    """Whether the bias follows from the distance of two slots."""
    ordered = (
        context.query.position is context.query.slot and context.key.position is context.key.slot
    )
    return ordered and "shift" not in getattr(context.position, "breaks", ("shift",))


def slices(x: Tensor, blocks: Sequence[QueryBlock]) -> list[Tensor]:
    """What each block sees of keys or values (b, kv, s, d).

    Made of pieces that x is split into once, so that the backward pass touches every key as often
    as it is seen; a slice of x would send back a gradient as long as x.
    """
    if all(block.keys == x.shape[2] for block in blocks):
        return [x] * len(blocks)
    ends = sorted(
        {0, x.shape[2], *(block.first for block in blocks), *(block.last for block in blocks)}
    )
    pieces = x.split([b - a for a, b in pairwise(ends)], 2)
    at = {end: i for i, end in enumerate(ends)}
    found = []
    for block in blocks:
        some = pieces[at[block.first] : at[block.last]]
        found.append(some[0] if len(some) == 1 else torch.cat(some, 2))
    return found
