"""Attention with dropout on its weights, on a CPU, where torch's own way keeps all weights of all
pairs in memory.

softmax, then each weight is dropped with probability p and the others are divided by 1 - p (Vaswani
et al., 2017, section 5.4, and Srivastava et al., 2014), by blocks of queries, so that few scores
are there at once. As in FlashAttention (Dao et al., 2022, arXiv:2205.14135, algorithm 4) nothing of
the size of the scores is kept for the backward pass: it computes the weights again, from the
largest score and the sum of each row, and draws again what was dropped, from a seed of torch's
generator.

A draw is 16 bits of SFC64 (Doty-Humphrey, PractRand), half of the time that torch's Mersenne
Twister takes for them: p is rounded to a multiple of 2^-16, and the division is by what it is then.
Exponentials are powers of two, for they take half the time.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xformer_kit.kernel.blocks import QueryBlock

ROWS, CAUSAL_ROWS = (
    256,
    128,
)  # queries of a block; of a causal one half of the corner is computed for nothing
FEW = (
    1 << 19
)  # scores that are computed at once, but for one head of keys that has more: two MiB in fp32
STEPS = 1 << 16  # of probability
BITS = 1 / math.log(2)  # e^x = 2^(x BITS)


def threshold(probability: float) -> int:
    """Draws below it drop: 0 is never, STEPS is always."""
    return round(probability * STEPS)


def able(probability: float) -> bool:
    """Whether the computation below is the one to take: not where nothing or everything is dropped,
    and not within a compiled block, where torch's own way is compiled, draws and all.
    """
    return 0 < threshold(probability) < STEPS and not torch.compiler.is_compiling()


def attend(
    q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[QueryBlock], scale: float, probability: float
) -> Tensor:
    """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e). The blocks share no query
    and leave none out; their tables are (1 or b, 1 or h, 1 or queries, 1 or keys), and a causal
    block has none.
    """
    parts: dict[
        int, tuple[Tensor, ...]
    ] = {}  # those of a table, once for all blocks of a window that share it
    blocks = [part for block in blocks for part in thin(block, parts)]
    tables = {id(block.table): block.table for block in blocks}
    which = [list(tables).index(id(block.table)) for block in blocks]
    bare = [block._replace(table=None) for block in blocks]
    return Dropped.apply(q, k, v, scale, threshold(probability), bare, which, *tables.values())


def thin(block: QueryBlock, parts: dict[int, tuple[Tensor, ...]]) -> Iterator[QueryBlock]:
    """A block in parts of few queries. A causal one leaves out the keys that no query of a part
    sees. `parts`: of tables, by their identity.
    """
    count = block.stop - block.start
    size = CAUSAL_ROWS if block.causal else ROWS
    if count <= size:
        yield block
        return
    cuts = [*range(0, count, size), count]
    table = block.table
    if table is None or table.shape[-2] == 1:
        tables: Sequence[Tensor | None] = [table] * (len(cuts) - 1)
    else:
        if id(table) not in parts:
            parts[id(table)] = table.split(size, -2)
        tables = parts[id(table)]
    for (a, b), table in zip(pairwise(cuts), tables, strict=True):
        last = block.last - (count - b if block.causal else 0)
        yield QueryBlock(block.start + a, block.start + b, block.first, last, block.causal, table)


class Piece(NamedTuple):
    """The scores that are computed at once: some heads of a row of the batch, and a block."""

    row: int
    heads: slice  # of keys
    block: QueryBlock
    table: int  # which one


class Dropped(torch.autograd.Function):
    """The computation itself. Queries of heads that share keys stand below each other: (kv, group *
    queries, d).
    """

    @staticmethod
    def forward(ctx: Any, q, k, v, scale, dropped, blocks, which, *tables):
        seed = torch.randint(2**62, (), device="cpu")
        ctx.seed, ctx.dtype = int(seed) if _has_values(seed) else 0, q.dtype
        ctx.scale, ctx.dropped, ctx.blocks, ctx.which = scale, dropped, blocks, which
        with torch.autocast("cpu", enabled=False):
            q, k, v = (_wide(x) for x in (q, k, v))
            q = q.unflatten(1, (k.shape[1], -1))  # (b, h, t, d) -> (b, kv, group, t, d)
            most, total = q.new_empty(2, *q.shape[:4], 1)
            made = q.new_empty(q.shape[0], q.shape[1] * q.shape[2], q.shape[3], v.shape[-1])
            out, scaled = made.unflatten(1, q.shape[1:3]), q * (scale * BITS)
            work = Work(q, blocks, tables, which, ctx.seed)
            for piece in work.pieces():
                scores = work.scores(scaled, k, piece)
                _write(most, piece, scores.amax(-1, keepdim=True))
                weights = scores.sub_(_queries(most, piece)).exp2_()
                _write(total, piece, weights.sum(-1, keepdim=True))
                _write(
                    out, piece, torch.bmm(weights.mul_(work.draw(piece, dropped)), _keys(v, piece))
                )
            out *= STEPS / (STEPS - dropped) / total
        ctx.save_for_backward(q, k, v, made, most, total, *tables)
        return made.to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad):
        q, k, v, out, most, total, *tables = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            grad, out = (x.to(out.dtype).unflatten(1, q.shape[1:3]) for x in (grad, out))
            # Of each row: the sum over keys of weight times its gradient. Weights below are times
            # the sum of their row.
            inner = (grad * out).sum(-1, keepdim=True) / total
            grad, scaled = grad * (STEPS / (STEPS - ctx.dropped) / total), q * (ctx.scale * BITS)
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            asked = ctx.needs_input_grad[-len(tables) :]
            dtables = [
                out.new_zeros(t.shape) if need else None
                for t, need in zip(tables, asked, strict=True)
            ]
            work = Work(q, ctx.blocks, tables, ctx.which, ctx.seed)
            for piece in work.pieces():
                weights = work.scores(scaled, k, piece).sub_(_queries(most, piece)).exp2_()
                kept = work.draw(piece, ctx.dropped)
                above = _queries(grad, piece)
                dropped = torch.mul(weights, kept, out=kept)
                dweights = torch.bmm(above, _keys(v, piece).mT, out=work.room_for(2, piece))
                dscores = dweights.mul_(dropped).addcmul_(weights, _queries(inner, piece), value=-1)
                _keys(dv, piece).baddbmm_(dropped.mT, above)
                _keys(dk, piece).baddbmm_(dscores.mT, _queries(scaled, piece))
                _write(dq, piece, torch.bmm(dscores, _keys(k, piece)))
                if (whole := dtables[piece.table]) is not None:
                    into = work.of_heads(whole[work.row_of(whole, piece)], piece)
                    into.add_(work.apart(dscores).sum_to_size(into.shape))
            dq *= ctx.scale
            dk /= BITS
            given = [
                d if d is None else d.to(t.dtype) for d, t in zip(dtables, tables, strict=True)
            ]
        return (*(x.to(ctx.dtype) for x in (dq.flatten(1, 2), dk, dv)), *4 * (None,), *given)


class Work:
    """Room for the scores of a piece, which all pieces share, what masks add to scores, and
    draws.
    """

    def __init__(
        self,
        q: Tensor,
        blocks: list[QueryBlock],
        tables: Sequence[Tensor | None],
        which: list[int],
        seed: int,
    ):
        self.rows, self.kv, self.group = q.shape[:3]
        self.blocks = blocks
        self.tables = tables
        self.which = which
        self.each = [
            self.group * (block.stop - block.start) * block.keys for block in blocks
        ]  # a head of keys
        times = [-(-self.kv // max(1, min(self.kv, FEW // n))) for n in self.each]
        self.together = [-(-self.kv // n) for n in times]  # heads of keys
        most = max(n * count for n, count in zip(self.each, self.together, strict=True))
        self.room = [q.new_empty(most) for _ in range(3)]
        self.bits = np.random.SFC64(seed)
        self.real = _has_values(q)
        self.made: tuple[Any, Tensor | None, Tensor | None] = None, None, None

    def pieces(self) -> Iterator[Piece]:
        """In an order that is the same forward and backward, for the draws follow it. Where memory
        is only counted, the largest one of each table is enough: pieces take the same room, one
        after the other.
        """
        chosen: Sequence[int] = range(len(self.blocks))
        rows, heads = self.rows, self.kv
        if not self.real:
            chosen, rows, heads = self._largest(), 1, 1
        for index in chosen:
            for row in range(rows):
                for first in range(0, heads, self.together[index]):
                    some = slice(first, min(first + self.together[index], self.kv))
                    yield Piece(row, some, self.blocks[index], self.which[index])

    def _largest(self) -> Sequence[int]:
        """The block of most scores of each table."""
        found: dict[int, int] = {}
        for index, table in enumerate(self.which):
            if table not in found or self.each[index] > self.each[found[table]]:
                found[table] = index
        return list(found.values())

    def scores(self, scaled: Tensor, k: Tensor, piece: Piece) -> Tensor:
        """The masked scores times BITS, (kv, group * queries, keys). A query that sees nothing has
        those of one that sees all, and `draw` drops its weights.
        """
        scores = torch.bmm(_queries(scaled, piece), _keys(k, piece).mT, out=self.room_for(0, piece))
        added, _ = self.masked(piece)
        if piece.block.causal:
            queries = piece.block.stop - piece.block.start
            corner = scores.new_full((queries, queries), -math.inf).triu_(1)
            self.apart(scores)[..., piece.block.keys - queries :].add_(corner)
        elif added is not None:
            self.apart(scores).add_(self.of_heads(added, piece))
        return scores

    def draw(self, piece: Piece, dropped: int) -> Tensor:
        """1 where a weight is kept, 0 where it is dropped, or where the query sees nothing."""
        kept = self.room_for(1, piece)
        bits = torch.from_numpy(self.bits.random_raw(-(-kept.numel() // 4)).view(np.int16))
        torch.ge(bits[: kept.numel()].view(kept.shape), dropped - STEPS // 2, out=kept)
        _, empty = self.masked(piece)
        if empty is not None:
            self.apart(kept).masked_fill_(self.of_heads(empty, piece), 0)
        return kept

    def room_for(self, which: int, piece: Piece) -> Tensor:
        """One of the three rooms, as scores of a piece."""
        queries = self.group * (piece.block.stop - piece.block.start)
        shape = (piece.heads.stop - piece.heads.start, queries, piece.block.keys)
        return self.room[which][: math.prod(shape)].view(shape)

    def masked(self, piece: Piece) -> tuple[Tensor | None, Tensor | None]:
        """What is added to the scores of a row of the batch, times BITS, (1 or h, queries, keys),
        and which queries see nothing, or None where there are none; made once for all that follow
        with the same table.
        """
        table = self.tables[piece.table]
        if table is None:
            return None, None
        key = piece.table, self.row_of(table, piece)
        if self.made[0] != key:
            added = table.detach()[key[1]]
            if added.dtype == torch.bool:
                added = torch.zeros_like(added, dtype=self.room[0].dtype).masked_fill_(
                    ~added, -math.inf
                )
            empty = added.amax(-1, keepdim=True) == -math.inf
            added = (added.to(self.room[0].dtype) * BITS).masked_fill(empty, 0)
            self.made = key, added, None if _has_values(empty) and not empty.any() else empty
        return self.made[1:]

    def row_of(self, table: Tensor, piece: Piece) -> int:
        return piece.row if table.shape[0] > 1 else 0

    def of_heads(self, table: Tensor, piece: Piece) -> Tensor:
        """(1 or h, queries, keys) -> those of the piece's heads, (1 or kv, 1 or group, queries,
        keys).
        """
        return (
            table[None]
            if table.shape[0] == 1
            else table.unflatten(0, (-1, self.group))[piece.heads]
        )

    def apart(self, scores: Tensor) -> Tensor:
        """(kv, group * queries, keys) -> (kv, group, queries, keys)."""
        return scores.unflatten(1, (self.group, -1))


def _has_values(x: Tensor) -> bool:
    """Not where memory is only counted, by torch's fake tensors."""
    return not hasattr(x, "fake_mode")


def _wide(x: Tensor) -> Tensor:
    """In fp32 at least, and contiguous, for products are faster on that."""
    return (x if x.dtype == torch.float64 else x.float()).contiguous()


def _keys(x: Tensor, piece: Piece) -> Tensor:
    """Keys or values (b, kv, s, d) of a piece, (kv, keys, d)."""
    return x[piece.row, piece.heads, piece.block.first : piece.block.last]


def _queries(x: Tensor, piece: Piece) -> Tensor:
    """What belongs to queries, (b, kv, group, t, d), of a piece: (kv, group * queries, d)."""
    return x[piece.row, piece.heads, :, piece.block.start : piece.block.stop].flatten(1, 2)


def _write(x: Tensor, piece: Piece, new: Tensor) -> None:
    """The reverse of `_queries`."""
    there = x[piece.row, piece.heads, :, piece.block.start : piece.block.stop]
    there.copy_(new.view(there.shape))
