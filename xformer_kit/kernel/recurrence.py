"""Recurrences: a state that each token writes to and reads from, computed step by step or in
chunks.

S_t = exp(g_t) S_{t-1} + k_t^T u_t,   u_t = v_t, or under the delta rule b_t (v_t - k_t exp(g_t)
S_{t-1}),   o_t = q_t S_t

Shapes: q, k (b, h, t, d), v (b, h, t, e), `decay` g and `beta` b (b or 1, h, t), S (b, h, d, e). A
token with k = 0 and g = 0 leaves the state as it is. `segment` (b or 1, t) counts the documents
that have begun since the given state: the state before the first token of each is zero.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.tensors.tokens import AttentionContext, document_segments


class Recurrence(NamedTuple):
    """The inputs of a recurrence."""

    q: Tensor  # (b, h, t, d)
    k: Tensor  # (b, h, t, d)
    v: Tensor  # (b, h, t, e)
    # (b or 1, h, t): logarithms, at most 0; None: nothing is forgotten
    decay: Tensor | None = None
    # (b or 1, h, t): share of the value at a key that is replaced by the new one; None: no delta
    # rule
    beta: Tensor | None = None
    # (b or 1, t): number of documents that have begun since the given state; None: one document
    segment: Tensor | None = None

    def padded(self, count: int) -> "Recurrence":
        """Appends `count` tokens that leave the state unchanged."""
        if not count:
            return self
        q, k, v = (F.pad(x, (0, 0, 0, count)) for x in self[:3])
        decay, beta = (None if x is None else F.pad(x, (0, count)) for x in self[3:5])
        segment = self.segment
        if segment is not None:
            segment = torch.cat([segment, segment[:, -1:].expand(-1, count)], -1)
        return Recurrence(q, k, v, decay, beta, segment)


def steps(r: Recurrence, state: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the recurrence token by token. Returns what every token reads, (b, h, t, e), and the
    last state.
    """
    # Split once: the gradient of each single index would be as large as the tensor.
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
    """The slices of x along a dimension; None without end if x is None."""
    return repeat(None) if x is None else x.unbind(dim)


def chunks(r: Recurrence, state: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Computes the recurrence in chunks of `size` tokens: pairs of tokens within a chunk by matrix
    products, earlier tokens through the state.

    Under the delta rule the u of a chunk solve (I + A) u = b (v - exp(G) k S), A_ij = b_i exp(G_i -
    G_j) k_i k_j^T below the diagonal, G the sum of g within the chunk: the WY and UT form of a
    product of Householder matrices (Yang et al., 2024, arXiv:2406.06484, section 3.2; with g:
    arXiv:2412.06464, section 3.3). Memory is linear in t.
    """
    length = r.q.shape[2]
    r = r.padded(-length % size)
    q, k, v = (x.unflatten(2, (-1, size)) for x in r[:3])  # (b, h, t, d) -> (b, h, n, c, d)
    factors = _decay_factors(r, size)
    scores = factors.between(q @ k.mT)
    if r.beta is None:
        written, erased = v, None
    else:
        beta = r.beta.unflatten(2, (-1, size))[..., None]
        beta_k = k * beta
        inverse = _inverse(factors.between(beta_k @ k.mT))
        written, erased = inverse @ (v * beta), inverse @ factors.scaled(beta_k, factors.read)
    if erased is None:  # scales values, which may have fewer channels than keys (random features)
        before, state = _accumulate(k.mT @ factors.scaled(v, factors.write), factors.keep, state)
    else:
        k = factors.scaled(k, factors.write)
        before, state, written = _accumulate_delta(k.mT, written, erased, factors.keep, state)
    out = scores @ written + factors.scaled(q @ before, factors.read)
    return out.flatten(2, 3)[:, :, :length], state


def _inverse(system: Tensor) -> Tensor:
    """The inverse (..., c, c) of I + the part of `system` (..., c, c) below its diagonal:
    recursively by halves, small ones by substitution. On a CPU twice as fast, forward and backward,
    as torch's substitution.
    """
    size = system.shape[-1]
    if size <= 16:
        one = torch.eye(size, dtype=system.dtype, device=system.device).expand_as(system)
        return torch.linalg.solve_triangular(system, one, upper=False, unitriangular=True)
    half = size // 2
    first, last = _inverse(system[..., :half, :half]), _inverse(system[..., half:, half:])
    below = -last @ (system[..., half:, :half] @ first)
    return torch.cat([F.pad(first, (0, size - half)), torch.cat([below, last], -1)], -2)


def _accumulate(added: Tensor, keep: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """added (b, h, n, d, e), what chunks add, keep (b, h, n) and state (b, h, d, e) -> the states
    before each chunk (b, h, n, d, e) and after the last, (b, h, d, e).
    """
    if keep is None:
        sums = torch.cat([state[:, :, None], added], 2).cumsum(2)
        return sums[:, :, :-1], sums[:, :, -1]
    before = []
    for new, factor in zip(added.unbind(2), keep[..., None, None].unbind(2), strict=True):
        before.append(state)
        state = torch.addcmul(new, state, factor)
    return torch.stack(before, 2), state


def _accumulate_delta(
    keys: Tensor, written: Tensor, erased: Tensor, keep: Tensor | None, state: Tensor
):
    """The same under the delta rule, from keys (b, h, n, d, c), written (b, h, n, c, e) and erased
    (b, h, n, c, d); also returns what each token writes, its value minus the value that it
    replaces, (b, h, n, c, e).
    """
    # b h products at once
    rows, shape = [x.flatten(0, 1).unbind(1) for x in (keys, written, erased)], written.shape[:2]
    if keep is not None:
        keep = keep.expand(*shape, -1).flatten(0, 1)[..., None, None]
    state, before, written_rows = state.flatten(0, 1), [], []
    for k, new, old, factor in zip(*rows, _each(keep, 1), strict=False):
        before.append(state)
        written_rows.append(torch.baddbmm(new, old, state, alpha=-1))
        state = torch.baddbmm(state if factor is None else state * factor, k, written_rows[-1])
    return (
        torch.stack(before, 1).unflatten(0, shape),
        state.unflatten(0, shape),
        torch.stack(written_rows, 1).unflatten(0, shape),
    )


class DecayFactors(NamedTuple):
    """Factors by which what a token has written decays until it is read; None: 1."""

    pairs: Tensor | None  # (b, h, n, c, c), within a chunk
    read: Tensor | None  # (b, h, n, c): of the state before the chunk, at a token
    write: Tensor | None  # (b, h, n, c): of a token, after the chunk
    keep: Tensor | None  # (b, h, n): of the state before the chunk, after it

    def between(self, products: Tensor) -> Tensor:
        """Decayed products (b, h, n, c, c) of each token with itself and earlier ones."""
        return products.tril() if self.pairs is None else products * self.pairs

    @staticmethod
    def scaled(x: Tensor, factor: Tensor | None) -> Tensor:
        return x if factor is None else x * factor[..., None]


def _decay_factors(r: Recurrence, size: int) -> DecayFactors:
    """The decay factors of a recurrence in chunks of `size` tokens."""
    if r.decay is None and r.segment is None:
        return DecayFactors(None, None, None, None)
    causal = torch.ones(size, size, dtype=torch.bool, device=r.q.device).tril()
    if r.segment is None:
        return _from_logs(r.decay.unflatten(2, (-1, size)).cumsum(-1), causal)
    segment = r.segment.unflatten(1, (-1, size))[:, None]  # (b, 1, n, c)
    last = segment[..., -1:]
    state_document = F.pad(last[:, :, :-1], (0, 0, 1, 0))  # of the state before each chunk
    causal = causal & (segment[..., None] == segment[..., None, :])
    same_document = segment == state_document, segment == last, (last == state_document)[..., 0]
    if r.decay is None:
        return DecayFactors(*(x.to(r.q.dtype) for x in (causal, *same_document)))
    # Summed separately in each document, so that gradients do not cross its start.
    decay = r.decay.unflatten(2, (-1, size))
    return _from_logs((causal.to(decay.dtype) @ decay[..., None])[..., 0], causal, same_document)


def _from_logs(
    total: Tensor, causal: Tensor, same_document: tuple[Tensor, ...] | None = None
) -> DecayFactors:
    """The factors from the sums (b, h, n, c) of g in a chunk. `same_document`: where `read`,
    `write` and `keep` concern one document.
    """
    end = total[..., -1:]
    # Masked before exp, which may overflow there.
    logs = (total[..., None] - total[..., None, :]).masked_fill(~causal, -torch.inf)
    rest = [total, end - total, end[..., 0]]
    if same_document is not None:
        rest = [
            x.masked_fill(~same, -torch.inf) for x, same in zip(rest, same_document, strict=True)
        ]
    return DecayFactors(logs.exp(), *(x.exp() for x in rest))


def segments(context: AttentionContext) -> Tensor | None:
    """The segment of each of the context's queries, (b or 1, t); see `document_segments`."""
    return document_segments(context.query, context.key)
