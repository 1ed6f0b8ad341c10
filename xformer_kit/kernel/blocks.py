"""Blocks of queries, each with the slice of keys that its band allows.

Scores of masked keys at both ends are then never computed, and no tensor of all pairs of tokens is
built.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from xformer_kit.kernel.base import bias
from xformer_kit.tensors.tokens import AttentionContext


class QueryBlock(NamedTuple):
    """Queries start, ..., stop - 1 with the keys first, ..., last - 1."""

    start: int
    stop: int
    first: int
    last: int
    causal: bool = False  # whether it has as many keys as queries and a causal mask
    # attention mask, or a bias that is -inf where it is False; broadcasts to (b, h, queries, keys)
    table: Tensor | None = None

    @property
    def keys(self) -> int:
        return self.last - self.first


def query_blocks(
    context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype, size: int
) -> tuple[QueryBlock, ...]:
    """The blocks of a context of (b, t) queries and (b, s) keys whose mask is a band, with `size`
    queries each. Equal tables are one tensor, (1 or b, 1 or h, queries, keys) of bool or `dtype`.
    """
    left, right = context.mask.band()
    queries, keys = context.query.length, context.key.length
    ahead = keys - queries  # keys before the first query; queries are the last of the keys
    uniform = (
        context.key.real is None
        and context.key.document is None
        and (not biased or _shifts(context))
    )
    blocks: list[QueryBlock] = []
    tables: dict[tuple[int, ...] | None, Tensor | None] = {}
    # Neither `range` nor a dictionary takes a length that a graph leaves open. With several blocks
    # a graph of the whole model is of one length.
    single = queries <= size
    for start in (0,) if single else range(0, queries, size):
        stop = queries if single else min(start + size, queries)
        first = 0 if left == math.inf else max(0, start + ahead - int(left))
        last = keys if right == math.inf else min(keys, stop + ahead + int(right))
        # Distances, query - key.
        nearest, farthest = start + ahead - (last - 1), stop - 1 + ahead - first
        covered = farthest <= left and nearest >= -right
        square = right == 0 and farthest <= left and stop - start == last - first
        if square and uniform and not biased:
            blocks.append(QueryBlock(start, stop, first, last, causal=stop - start > 1))
            continue
        shape = None if single else (farthest, stop - start, last - first)
        if not uniform or shape not in tables:
            part = context
            if not (single and first == 0 and last == keys):
                part = context.narrow(slice(start, stop), slice(first, last))
            tables[shape] = attention_table(part, heads, biased, dtype, covered)
        blocks.append(QueryBlock(start, stop, first, last, table=tables[shape]))
    return tuple(blocks)


def attention_table(
    context: AttentionContext, heads: int, biased: bool, dtype: torch.dtype, covered: bool
) -> Tensor | None:
    """The attention mask, or the position's bias with -inf where it is False, (1 or b, 1 or h, t,
    s); None if neither is needed. `covered`: whether `context.mask` allows all pairs.
    """
    visible = context.visible_pairs(heads, covered)
    if not biased:
        return visible
    added = bias(context, heads).to(dtype)
    return added if visible is None else torch.where(visible, added, -math.inf)


def _shifts(context: AttentionContext) -> bool:
    """Whether the bias depends only on the distance between two slots."""
    ordered = all(tokens.position is tokens.slot for tokens in (context.query, context.key))
    return ordered and "shift" not in getattr(context.position, "breaks", ("shift",))


def slices(x: Tensor, blocks: Sequence[QueryBlock]) -> list[Tensor]:
    """The slice of keys or values x (b, kv, s, d) for each block.

    x is split once into pieces, of which the slices are concatenated: the gradient of a slice of x
    would be as large as x.
    """
    if all(block.keys == x.shape[2] for block in blocks):
        return [x] * len(blocks)
    cuts = sorted({0, x.shape[2], *(cut for block in blocks for cut in (block.first, block.last))})
    pieces = x.split([b - a for a, b in pairwise(cuts)], 2)
    index = {cut: i for i, cut in enumerate(cuts)}
    parts = [pieces[index[block.first] : index[block.last]] for block in blocks]
    return [part[0] if len(part) == 1 else torch.cat(part, 2) for part in parts]
