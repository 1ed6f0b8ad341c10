"""Attention with dropout on its weights on a CPU, where torch would store the weights of all pairs.

softmax, then each weight is dropped with probability p and the others are divided by 1 - p (Vaswani
et al., 2017, section 5.4, and Srivastava et al., 2014), by blocks of queries, so that few scores
exist at once. As in FlashAttention (Dao et al., 2022, arXiv:2205.14135, algorithm 4) nothing of the
size of the scores is saved for backward, which recomputes the weights from the maximum and the sum
of each row, and draws the same dropout mask again, with a seed from torch's generator.

A draw is 16 bits of SFC64 (Doty-Humphrey, PractRand), which takes half as long as torch's Mersenne
Twister: p is rounded to a multiple of 2^-16, also in the division. Exponentials are powers of two,
which take half as long.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xformer_kit.kernel.blocks import QueryBlock
from xformer_kit.tensors.precision import at_least_fp32

# Queries per block. Half of the square at the end of a causal block is masked, so that it is
# smaller.
ROWS = 256
CAUSAL_ROWS = 128
# Scores that are computed at once, unless one key head has more: 2 MiB in fp32.
MAX_SCORES = 1 << 19
STEPS = 1 << 16  # steps of the probability
BITS = 1 / math.log(2)  # e^x = 2^(x BITS)


def threshold(probability: float) -> int:
    """The number below which a draw drops a weight: 0 is never, STEPS is always."""
    return round(probability * STEPS)


def is_supported(probability: float) -> bool:
    """Whether `attend` should be used: not if no or all weights are dropped, and not in a compiled
    block, where torch compiles its own implementation.
    """
    return 0 < threshold(probability) < STEPS and not torch.compiler.is_compiling()


def attend(
    q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[QueryBlock], scale: float, probability: float
) -> Tensor:
    """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e). The blocks share no query
    and leave none out; their tables are (1 or b, 1 or h, 1 or queries, 1 or keys), and a causal
    block has none.
    """
    parts: dict[int, tuple[Tensor, ...]] = {}  # id of a table -> its parts, which blocks share
    blocks = [part for block in blocks for part in split_block(block, parts)]
    tables = {id(block.table): block.table for block in blocks}
    table_index = [list(tables).index(id(block.table)) for block in blocks]
    bare = [block._replace(table=None) for block in blocks]
    return DropoutAttention.apply(
        q, k, v, scale, threshold(probability), bare, table_index, *tables.values()
    )


def split_block(block: QueryBlock, parts: dict[int, tuple[Tensor, ...]]) -> Iterator[QueryBlock]:
    """Splits a block into blocks of few queries, those of a causal block with only the keys that
    they attend to. `parts`: id of a table -> its parts.
    """
    count = block.stop - block.start
    size = CAUSAL_ROWS if block.causal else ROWS
    if count <= size:
        yield block
        return
    table, starts = block.table, range(0, count, size)
    tables: Sequence[Tensor | None] = [table] * len(starts)
    if table is not None and table.shape[-2] > 1:
        if id(table) not in parts:
            parts[id(table)] = table.split(size, -2)
        tables = parts[id(table)]
    for a, table in zip(starts, tables, strict=True):
        b = min(a + size, count)
        last = block.last - (count - b if block.causal else 0)
        yield QueryBlock(block.start + a, block.start + b, block.first, last, block.causal, table)


class Piece(NamedTuple):
    """Scores that are computed at once: of some heads of one row of the batch, in one block."""

    row: int
    heads: slice  # key heads
    block: QueryBlock
    table: int  # index of its table


class DropoutAttention(torch.autograd.Function):
    """The autograd function. The queries of heads that share a key head are concatenated, (kv,
    group * queries, d).
    """

    @staticmethod
    def forward(ctx: Any, q, k, v, scale, dropped, blocks, table_index, *tables):
        """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e). scale: factor on
        scores; dropped: of STEPS, see `threshold`; blocks: without tables; table_index: index in
        `tables` of the table of each block.
        """
        seed = torch.randint(2**62, (), device="cpu")
        ctx.seed, ctx.dtype = int(seed) if _has_values(seed) else 0, q.dtype
        ctx.scale, ctx.dropped, ctx.blocks, ctx.table_index = scale, dropped, blocks, table_index
        with torch.autocast("cpu", enabled=False):
            q, k, v = (at_least_fp32(x).contiguous() for x in (q, k, v))  # for faster products
            q = q.unflatten(1, (k.shape[1], -1))  # (b, h, t, d) -> (b, kv, group, t, d)
            row_max, total = q.new_empty(2, *q.shape[:4], 1)
            flat_out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2], q.shape[3], v.shape[-1])
            out, scaled = flat_out.unflatten(1, q.shape[1:3]), q * (scale * BITS)
            work = Workspace(q, blocks, tables, table_index, ctx.seed)
            for piece in work.pieces():
                scores = work.scores(scaled, k, piece)
                _write(row_max, piece, scores.amax(-1, keepdim=True))
                weights = scores.sub_(_queries(row_max, piece)).exp2_()
                _write(total, piece, weights.sum(-1, keepdim=True))
                _write(
                    out, piece, torch.bmm(weights.mul_(work.draw(piece, dropped)), _keys(v, piece))
                )
            out *= STEPS / (STEPS - dropped) / total
        ctx.save_for_backward(q, k, v, flat_out, row_max, total, *tables)
        return flat_out.to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad):
        """grad (b, h, t, e) -> gradients of q, k, v and of the tables that need one."""
        q, k, v, out, row_max, total, *tables = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            grad, out = (x.to(out.dtype).unflatten(1, q.shape[1:3]) for x in (grad, out))
            # For each row the sum over keys of weight times gradient. The weights below are not
            # divided by the sum of their row.
            inner = (grad * out).sum(-1, keepdim=True) / total
            grad, scaled = grad * (STEPS / (STEPS - ctx.dropped) / total), q * (ctx.scale * BITS)
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            needs_grad = ctx.needs_input_grad[-len(tables) :]
            dtables = [
                out.new_zeros(t.shape) if need else None
                for t, need in zip(tables, needs_grad, strict=True)
            ]
            work = Workspace(q, ctx.blocks, tables, ctx.table_index, ctx.seed)
            for piece in work.pieces():
                weights = work.scores(scaled, k, piece).sub_(_queries(row_max, piece)).exp2_()
                kept = work.draw(piece, ctx.dropped)
                out_grad = _queries(grad, piece)
                dropped = torch.mul(weights, kept, out=kept)
                dweights = torch.bmm(out_grad, _keys(v, piece).mT, out=work.buffer(2, piece))
                dscores = dweights.mul_(dropped).addcmul_(weights, _queries(inner, piece), value=-1)
                _keys(dv, piece).baddbmm_(dropped.mT, out_grad)
                _keys(dk, piece).baddbmm_(dscores.mT, _queries(scaled, piece))
                _write(dq, piece, torch.bmm(dscores, _keys(k, piece)))
                if (table_grad := dtables[piece.table]) is not None:
                    target = work.of_heads(table_grad[work.row_of(table_grad, piece)], piece)
                    target.add_(work.by_group(dscores).sum_to_size(target.shape))
            dq *= ctx.scale
            dk /= BITS
            table_grads = [
                d if d is None else d.to(t.dtype) for d, t in zip(dtables, tables, strict=True)
            ]
        return (*(x.to(ctx.dtype) for x in (dq.flatten(1, 2), dk, dv)), *4 * (None,), *table_grads)


class Workspace:
    """Buffers for the scores of a piece, which all pieces share, masks, and random numbers."""

    def __init__(
        self,
        q: Tensor,
        blocks: list[QueryBlock],
        tables: Sequence[Tensor | None],
        table_index: list[int],
        seed: int,
    ):
        self.rows, self.kv, self.group = q.shape[:3]
        self.blocks = blocks
        self.tables = tables
        self.table_index = table_index
        # of one key head
        self.head_sizes = [self.group * (b.stop - b.start) * b.keys for b in blocks]
        times = [-(-self.kv // max(1, min(self.kv, MAX_SCORES // n))) for n in self.head_sizes]
        self.heads_at_once = [-(-self.kv // n) for n in times]  # key heads
        size = max(n * count for n, count in zip(self.head_sizes, self.heads_at_once, strict=True))
        self.buffers = [q.new_empty(size) for _ in range(3)]
        self.bits = np.random.SFC64(seed)
        self.real = _has_values(q)
        self.cached_mask: tuple[Any, Tensor | None, Tensor | None] = None, None, None

    def pieces(self) -> Iterator[Piece]:
        """Yields all pieces, in the same order forward and backward, which the draws follow. With
        fake tensors, which only measure memory, it yields the largest piece of each table: pieces
        use the same buffers one after another.
        """
        chosen: Sequence[int] = range(len(self.blocks))
        rows, heads = self.rows, self.kv
        if not self.real:
            chosen, rows, heads = self._largest(), 1, 1
        for index in chosen:
            for row in range(rows):
                for first in range(0, heads, self.heads_at_once[index]):
                    some = slice(first, min(first + self.heads_at_once[index], self.kv))
                    yield Piece(row, some, self.blocks[index], self.table_index[index])

    def _largest(self) -> Sequence[int]:
        """The index of the largest block of each table."""
        by_size = sorted(range(len(self.blocks)), key=self.head_sizes.__getitem__)
        return list({self.table_index[index]: index for index in by_size}.values())

    def scores(self, scaled: Tensor, k: Tensor, piece: Piece) -> Tensor:
        """The masked scores times BITS, (kv, group * queries, keys). The row of a query without
        visible keys is not masked; `draw` drops its weights.
        """
        scores = torch.bmm(_queries(scaled, piece), _keys(k, piece).mT, out=self.buffer(0, piece))
        added, _ = self.masked(piece)
        if piece.block.causal:
            queries = piece.block.stop - piece.block.start
            corner = scores.new_full((queries, queries), -math.inf).triu_(1)
            self.by_group(scores)[..., piece.block.keys - queries :].add_(corner)
        elif added is not None:
            self.by_group(scores).add_(self.of_heads(added, piece))
        return scores

    def draw(self, piece: Piece, dropped: int) -> Tensor:
        """1 where a weight is kept, 0 where it is dropped or the query has no visible keys."""
        kept = self.buffer(1, piece)
        bits = torch.from_numpy(self.bits.random_raw(-(-kept.numel() // 4)).view(np.int16))
        torch.ge(bits[: kept.numel()].view(kept.shape), dropped - STEPS // 2, out=kept)
        _, empty = self.masked(piece)
        if empty is not None:
            self.by_group(kept).masked_fill_(self.of_heads(empty, piece), 0)
        return kept

    def buffer(self, index: int, piece: Piece) -> Tensor:
        """One of the three buffers, in the shape of a piece's scores."""
        queries = self.group * (piece.block.stop - piece.block.start)
        shape = (piece.heads.stop - piece.heads.start, queries, piece.block.keys)
        return self.buffers[index][: math.prod(shape)].view(shape)

    def masked(self, piece: Piece) -> tuple[Tensor | None, Tensor | None]:
        """The mask or bias of a row of the batch times BITS, (1 or h, queries, keys), and which
        queries have no visible keys, or None if there are none. The result is cached for the next
        pieces with the same table.
        """
        table = self.tables[piece.table]
        if table is None:
            return None, None
        key = piece.table, self.row_of(table, piece)
        if self.cached_mask[0] != key:
            added = table.detach()[key[1]]
            if added.dtype == torch.bool:
                added = torch.zeros_like(added, dtype=self.buffers[0].dtype).masked_fill_(
                    ~added, -math.inf
                )
            empty = added.amax(-1, keepdim=True) == -math.inf
            added = (added.to(self.buffers[0].dtype) * BITS).masked_fill(empty, 0)
            self.cached_mask = key, added, None if _has_values(empty) and not empty.any() else empty
        return self.cached_mask[1:]

    def row_of(self, table: Tensor, piece: Piece) -> int:
        """The index of the piece's row in a table, which may have one row for all."""
        return piece.row if table.shape[0] > 1 else 0

    def of_heads(self, table: Tensor, piece: Piece) -> Tensor:
        """(1 or h, queries, keys) -> those of the piece's heads, (1 or kv, 1 or group, queries,
        keys).
        """
        if table.shape[0] == 1:
            return table[None]
        return table.unflatten(0, (-1, self.group))[piece.heads]

    def by_group(self, scores: Tensor) -> Tensor:
        """(kv, group * queries, keys) -> (kv, group, queries, keys)."""
        return scores.unflatten(1, (self.group, -1))


def _has_values(x: Tensor) -> bool:
    """Whether it is not one of torch's fake tensors, which only measure memory."""
    return not hasattr(x, "fake_mode")


def _keys(x: Tensor, piece: Piece) -> Tensor:
    """Keys or values (b, kv, s, d) of a piece, (kv, keys, d)."""
    return x[piece.row, piece.heads, piece.block.first : piece.block.last]


def _queries(x: Tensor, piece: Piece) -> Tensor:
    """A piece of (b, kv, group, t, d), (kv, group * queries, d)."""
    return x[piece.row, piece.heads, :, piece.block.start : piece.block.stop].flatten(1, 2)


def _write(x: Tensor, piece: Piece, new: Tensor) -> None:
    """Writes (kv, group * queries, d) to where `_queries` reads it."""
    target = x[piece.row, piece.heads, :, piece.block.start : piece.block.stop]
    target.copy_(new.view(target.shape))
