"""A state that is read and written by one token after another, in place of scores: step by step, or
in chunks.

S_t = exp(g_t) S_{t-1} + k_t^T u_t,   u_t = v_t, or under the delta rule b_t (v_t - k_t exp(g_t)
S_{t-1}),   o_t = q_t S_t

Shapes: q, k (b, h, t, d), v (b, h, t, e), `decay` g and `beta` b (b or 1, h, t), S (b, h, d, e). A
token with k = 0 and g = 0 leaves the state as it is. `segment` (b or 1, t) counts the documents
that have begun since the state that is given: the first token of each finds a state of zeros.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.model.tokens import AttentionContext


class Recurrence(NamedTuple):
    """What is read and written, token by token."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None = None  # logarithms, at most 0; None: nothing is forgotten
    # share of what stood under a key that is replaced; None: no delta rule
    beta: Tensor | None = None
    segment: Tensor | None = None  # None: one document

    def padded(self, count: int) -> "Recurrence":
        """With so many tokens behind the last that leave the state as it is."""
        if not count:
            return self
        q, k, v = (F.pad(x, (0, 0, 0, count)) for x in self[:3])
        decay, beta = (None if x is None else F.pad(x, (0, count)) for x in self[3:5])
        segment = self.segment
        if segment is not None:
            segment = torch.cat([segment, segment[:, -1:].expand(-1, count)], -1)
        return Recurrence(q, k, v, decay, beta, segment)


def steps(r: Recurrence, state: Tensor) -> tuple[Tensor, Tensor]:
    """The equations as they are written: what every token reads (b, h, t, e), and the last
    state.
    """
    # Taken apart at once: each index of its own would have a gradient as large as the whole.
    rows = zip(
        *(x.split(1, 2) for x in r[:3]),
        *(_each(x, 2) for x in r[3:5]),
        _each(r.segment, 1),
        strict=False,
    )
    read, last = [], None
    for q, k, v, decay, beta, segment in rows:
        if segment is not None:
            state = state.masked_fill(
                (segment != (0 if last is None else last)).view(-1, 1, 1, 1), 0
            )
            last = segment
        if decay is not None:
            state = state * decay[..., None, None].exp()
        if beta is not None:
            v = (v - k @ state) * beta[..., None, None]
        state = state + k.mT @ v
        read.append(q @ state)
    return torch.cat(read, 2), state


def _each(x: Tensor | None, dim: int) -> Iterable[Tensor | None]:
    return repeat(None) if x is None else x.unbind(dim)


def chunks(r: Recurrence, state: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The same as products: pairs within a chunk of `size` tokens directly, what lies before it
    through the state.

    Under the delta rule the u of a chunk solve (I + A) u = b (v - exp(G) k S), A_ij = b_i exp(G_i -
    G_j) k_i k_j^T below the diagonal, G the sum of g within the chunk: the WY and UT form of a
    product of Householder matrices (Yang et al., 2024, arXiv:2406.06484, section 3.2; with g:
    arXiv:2412.06464, section 3.3). Memory is linear in t.
    """
    length = r.q.shape[2]
    r = r.padded(-length % size)
    q, k, v = (x.unflatten(2, (-1, size)) for x in r[:3])  # (b, h, t, d) -> (b, h, n, c, d)
    passes = _passes(r, size)
    scores = passes.between(q @ k.mT)
    if r.beta is None:
        written, erased = v, None
    else:
        beta = r.beta.unflatten(2, (-1, size))[..., None]
        taken = k * beta
        inverse = _inverse(passes.between(taken @ k.mT))
        written, erased = inverse @ (v * beta), inverse @ passes.scaled(taken, passes.read)
    if (
        erased is None
    ):  # values are scaled, of which there are fewer channels than of keys that are random features
        before, state = _accumulated(k.mT @ passes.scaled(v, passes.write), passes.keep, state)
    else:
        k = passes.scaled(k, passes.write)
        before, state, written = _corrected(k.mT, written, erased, passes.keep, state)
    out = scores @ written + passes.scaled(q @ before, passes.read)
    return out.flatten(2, 3)[:, :, :length], state


def _inverse(system: Tensor) -> Tensor:
    """Of I + the part of `system` (..., c, c) below its diagonal: halves by products, small ones by
    substitution. On a CPU twice as fast, forward and backward, as one substitution of torch.
    """
    size = system.shape[-1]
    if size <= 16:
        one = torch.eye(size, dtype=system.dtype, device=system.device).expand_as(system)
        return torch.linalg.solve_triangular(system, one, upper=False, unitriangular=True)
    half = size // 2
    first, last = _inverse(system[..., :half, :half]), _inverse(system[..., half:, half:])
    below = -last @ (system[..., half:, :half] @ first)
    return torch.cat([F.pad(first, (0, size - half)), torch.cat([below, last], -1)], -2)


def _accumulated(added: Tensor, keep: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """The state before each chunk (b, h, n, d, e) and behind the last, from what chunks add to
    it.
    """
    if keep is None:
        sums = torch.cat([state[:, :, None], added], 2).cumsum(2)
        return sums[:, :, :-1], sums[:, :, -1]
    before = []
    for new, stays in zip(added.unbind(2), keep[..., None, None].unbind(2), strict=True):
        before.append(state)
        state = torch.addcmul(new, state, stays)
    return torch.stack(before, 2), state


def _corrected(keys: Tensor, written: Tensor, erased: Tensor, keep: Tensor | None, state: Tensor):
    """The same under the delta rule, and what each token writes when what stood there is taken
    away.
    """
    rows, shape = (
        [x.flatten(0, 1).unbind(1) for x in (keys, written, erased)],
        written.shape[:2],
    )  # b h products at once
    if keep is not None:
        keep = keep.expand(*shape, -1).flatten(0, 1)[..., None, None]
    state, before, fresh = state.flatten(0, 1), [], []
    for k, new, old, stays in zip(*rows, _each(keep, 1), strict=False):
        before.append(state)
        fresh.append(torch.baddbmm(new, old, state, alpha=-1))
        state = torch.baddbmm(state if stays is None else state * stays, k, fresh[-1])
    return (
        torch.stack(before, 1).unflatten(0, shape),
        state.unflatten(0, shape),
        torch.stack(fresh, 1).unflatten(0, shape),
    )


class Passes(NamedTuple):
    """How much of what one token wrote is there for another; None: all of it."""

    pairs: Tensor | None  # (b, h, n, c, c), within a chunk
    read: Tensor | None  # (b, h, n, c): of the state before the chunk
    write: Tensor | None  # (b, h, n, c): of a token, behind the chunk
    keep: Tensor | None  # (b, h, n): of the state before the chunk, behind it

    def between(self, products: Tensor) -> Tensor:
        """Products (b, h, n, c, c) of the tokens of a chunk, each with itself and those before
        it.
        """
        return products.tril() if self.pairs is None else products * self.pairs

    @staticmethod
    def scaled(x: Tensor, factor: Tensor | None) -> Tensor:
        return x if factor is None else x * factor[..., None]


def _passes(r: Recurrence, size: int) -> Passes:
    if r.decay is None and r.segment is None:
        return Passes(None, None, None, None)
    seen = torch.ones(size, size, dtype=torch.bool, device=r.q.device).tril()
    if r.segment is None:
        return _falling(r.decay.unflatten(2, (-1, size)).cumsum(-1), seen)
    segment = r.segment.unflatten(1, (-1, size))[:, None]  # (b, 1, n, c)
    last = segment[..., -1:]
    held = F.pad(last[:, :, :-1], (0, 0, 1, 0))  # of the state before each chunk
    seen = seen & (segment[..., None] == segment[..., None, :])
    there = segment == held, segment == last, (last == held)[..., 0]
    if r.decay is None:
        return Passes(*(x.to(r.q.dtype) for x in (seen, *there)))
    decay = r.decay.unflatten(
        2, (-1, size)
    )  # summed anew in each document, so that no gradient crosses its start
    return _falling((seen.to(decay.dtype) @ decay[..., None])[..., 0], seen, there)


def _falling(total: Tensor, seen: Tensor, there: tuple[Tensor, ...] | None = None) -> Passes:
    """From the sums (b, h, n, c) of g in a chunk. `there`: what of `read`, `write` and `keep` is of
    the same document.
    """
    end = total[..., -1:]
    logs = (total[..., None] - total[..., None, :]).masked_fill(
        ~seen, -torch.inf
    )  # first: what is not seen may overflow
    rest = [total, end - total, end[..., 0]]
    if there is not None:
        rest = [x.masked_fill(~same, -torch.inf) for x, same in zip(rest, there, strict=True)]
    return Passes(logs.exp(), *(x.exp() for x in rest))


def segments(context: AttentionContext) -> Tensor | None:
    """How many documents have begun at each of the context's queries since the last token before
    them, (b or 1, t); None where there is one. Padding begins none. Tokens that stand together are
    a document: one that was left does not come back.
    """
    document, real = context.key.document, context.key.real
    if document is None or context.query.document is None:
        return None
    if real is not None:  # padding belongs to the last token before it, or the first behind it
        rows = max(document.shape[0], real.shape[0])
        document, real = document.expand(rows, -1), real.expand(rows, -1)
        at = torch.arange(real.shape[1], device=real.device).expand_as(real)
        first = at.masked_fill(~real, real.shape[1] - 1).amin(-1, keepdim=True)
        document = document.gather(
            1, torch.maximum(at.masked_fill(~real, -1).cummax(-1).values, first)
        )
    begins = document[:, 1:] != document[:, :-1]
    count = F.pad(begins, (1, 0)).cumsum(-1)
    past = context.key.length - context.query.length
    return count[:, past:] - count[:, past - 1 : past] if past else count
