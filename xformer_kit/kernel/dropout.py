"""Attention with dropout on its weights, on a CPU, where torch's own way keeps all weights of all pairs in memory.

softmax, then each weight is dropped with probability p and the others are divided by 1 - p (Vaswani et al., 2017, section
5.4, and Srivastava et al., 2014), by blocks of queries whose scores fit a cache. As in FlashAttention (Dao et al., 2022,
arXiv:2205.14135, algorithm 4) nothing of the size of the scores is kept for the backward pass: it computes the weights again,
and draws again what was dropped, from the state that torch's generator had.

A draw is 16 bits, a quarter of what torch takes: p is rounded to a multiple of 2^-16, and the division is by what it is then.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xformer_kit.kernel.blocks import Block

ROWS, CAUSAL_ROWS = 256, 128  # queries of a block; of a causal one half of the corner is computed for nothing
FEW = 1 << 18  # scores that are computed at once: a MiB in fp32
STEPS = 1 << 16  # of probability


def threshold(probability: float) -> int:
    """Draws below it drop: 0 is never, STEPS is always."""
    return round(probability * STEPS)


def able(probability: float) -> bool:
    """Whether the computation below is the one to take: not where nothing or everything is dropped, and not within a
    compiled block, where torch's own way is compiled, draws and all."""
    return 0 < threshold(probability) < STEPS and not torch.compiler.is_compiling()


def attend(q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Block], scale: float, probability: float) -> Tensor:
    """q (b, h, t, d), k (b, kv, s, d), v (b, kv, s, e) -> (b, h, t, e). The blocks share no query and leave none out."""
    blocks = [part for block in blocks for part in thin(block)]
    tables = [block.table for block in blocks]
    return Dropped.apply(q, k, v, scale, threshold(probability), [b._replace(table=None) for b in blocks], *tables)


def thin(block: Block) -> Iterator[Block]:
    """A block in parts of few queries. A causal one leaves out the keys that no query of a part sees."""
    count = block.stop - block.start
    size = CAUSAL_ROWS if block.causal else ROWS
    cuts = [*range(0, count, size), count]
    whole = block.table is None or block.table.shape[-2] == 1
    tables = [block.table] * (len(cuts) - 1) if whole else block.table.split(size, -2)  # type: ignore[union-attr]
    for (a, b), table in zip(pairwise(cuts), tables, strict=True):
        last = block.last - (count - b if block.causal else 0)
        yield Block(block.start + a, block.start + b, block.first, last, block.causal, table)


class Piece(NamedTuple):
    """The scores that are computed at once: some heads of a row of the batch, and a block."""

    row: int
    heads: slice  # of keys
    block: Block
    number: int  # of the block


class Dropped(torch.autograd.Function):
    """The computation itself. Queries of heads that share keys stand below each other: (kv, group * queries, d)."""

    @staticmethod
    def forward(ctx: Any, q, k, v, scale, dropped, blocks, *tables):
        ctx.state, ctx.dtype = torch.get_rng_state(), q.dtype
        ctx.scale, ctx.dropped, ctx.blocks = scale, dropped, blocks
        with torch.autocast("cpu", enabled=False):
            q, k, v = (_wide(x) for x in (q, k, v))
            q = q.unflatten(1, (k.shape[1], -1))  # (b, h, t, d) -> (b, kv, group, t, d)
            out, scaled, work = q.new_empty(*q.shape[:4], v.shape[-1]), q * scale, Work(q, blocks, tables)
            for piece in work.pieces():
                weights, kept = work.weights(scaled, k, piece), work.draw(piece, dropped, None)
                _write(out, piece, torch.bmm(weights.mul_(kept), _keys(v, piece)))
            out *= STEPS / (STEPS - dropped)
        ctx.save_for_backward(q, k, v, out, *tables)
        return out.flatten(1, 2).to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad):
        q, k, v, out, *tables = ctx.saved_tensors
        generator = torch.Generator()
        generator.set_state(ctx.state)
        with torch.autocast("cpu", enabled=False):
            grad = grad.to(out.dtype).reshape(out.shape)
            inner = (grad * out).sum(-1, keepdim=True)  # of each row: the sum over keys of weight times its gradient
            grad, scaled = grad * (STEPS / (STEPS - ctx.dropped)), q * ctx.scale
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            asked = ctx.needs_input_grad[-len(tables) :]
            dtables = [torch.zeros_like(t) if need else None for t, need in zip(tables, asked, strict=True)]
            work = Work(q, ctx.blocks, tables)
            for piece in work.pieces():
                weights, kept = work.weights(scaled, k, piece), work.draw(piece, ctx.dropped, generator)
                above = _queries(grad, piece)
                dropped = torch.mul(weights, kept, out=kept)
                dweights = torch.bmm(above, _keys(v, piece).mT, out=work.room_for(2, piece))
                dscores = dweights.mul_(dropped).addcmul_(weights, _queries(inner, piece), value=-1)
                _keys(dv, piece).baddbmm_(dropped.mT, above)
                _keys(dk, piece).baddbmm_(dscores.mT, _queries(scaled, piece))
                _write(dq, piece, torch.bmm(dscores, _keys(k, piece)))
                if (whole := dtables[piece.number]) is not None:
                    into = work.of_heads(whole[work.row_of(whole, piece)], piece)
                    into.add_(work.apart(dscores).sum_to_size(into.shape))
            dq *= ctx.scale
        return (*(x.to(ctx.dtype) for x in (dq.flatten(1, 2), dk, dv)), None, None, None, *dtables)


class Work:
    """Room for the scores of a piece, which all pieces share, and what masks add to scores."""

    def __init__(self, q: Tensor, blocks: Sequence[Block], tables: Sequence[Tensor | None]):
        self.rows, self.kv, self.group = q.shape[:3]
        self.blocks, self.tables = blocks, tables
        each = [self.group * (block.stop - block.start) * block.keys for block in blocks]
        self.together = [max(1, min(self.kv, FEW // n)) for n in each]  # heads of keys
        most = max(n * count for n, count in zip(each, self.together, strict=True))
        self.room = [q.new_empty(most) for _ in range(3)]
        self.bits = torch.empty(-(-most // 4), dtype=torch.int64)
        self.made: tuple[Any, Tensor | None, Tensor | None] = None, None, None

    def pieces(self) -> Iterator[Piece]:
        """In an order that is the same forward and backward, for the draws follow it."""
        for index, block in enumerate(self.blocks):
            for row in range(self.rows):
                for first in range(0, self.kv, self.together[index]):
                    yield Piece(row, slice(first, min(first + self.together[index], self.kv)), block, index)

    def weights(self, scaled: Tensor, k: Tensor, piece: Piece) -> Tensor:
        """softmax of the masked scores, (kv, group * queries, keys). A query that sees nothing has the weights of one that
        sees all, and `draw` drops them."""
        scores = torch.bmm(_queries(scaled, piece), _keys(k, piece).mT, out=self.room_for(0, piece))
        added, _ = self.masked(piece)
        if piece.block.causal:
            queries = piece.block.stop - piece.block.start
            corner = scores.new_full((queries, queries), -math.inf).triu_(1)
            self.apart(scores)[..., piece.block.keys - queries :].add_(corner)
        elif added is not None:
            self.apart(scores).add_(self.of_heads(added, piece))
        return torch.softmax(scores, -1, out=scores)

    def draw(self, piece: Piece, dropped: int, generator: torch.Generator | None) -> Tensor:
        """1 where a weight is kept, 0 where it is dropped."""
        kept = self.room_for(1, piece)
        bits = self.bits[: -(-kept.numel() // 4)].random_(-(2**63), None, generator=generator).view(torch.int16)
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
        """What is added to the scores of a row of the batch, (1 or h, queries, keys), and which queries see nothing, or None
        where there are none; made once for all heads."""
        table = self.tables[piece.number]
        if table is None:
            return None, None
        key = piece.number, self.row_of(table, piece)
        if self.made[0] != key:
            added = table.detach()[key[1]]
            if added.dtype == torch.bool:
                added = torch.zeros_like(added, dtype=self.room[0].dtype).masked_fill_(~added, -math.inf)
            empty = added.amax(-1, keepdim=True) == -math.inf
            self.made = key, added.to(self.room[0].dtype).masked_fill(empty, 0), empty
        return self.made[1:]

    def row_of(self, table: Tensor, piece: Piece) -> int:
        return piece.row if table.shape[0] > 1 else 0

    def of_heads(self, table: Tensor, piece: Piece) -> Tensor:
        """(1 or h, queries, keys) -> those of the piece's heads, (1 or kv, 1 or group, queries, keys)."""
        return table[None] if table.shape[0] == 1 else table.unflatten(0, (-1, self.group))[piece.heads]

    def apart(self, scores: Tensor) -> Tensor:
        """(kv, group * queries, keys) -> (kv, group, queries, keys)."""
        return scores.unflatten(1, (self.group, -1))


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
