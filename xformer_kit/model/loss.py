"""How far are the predictions from the targets? Cross-entropy from hidden states, without ever
holding all logits.

The logits of a large vocabulary are the largest tensor of a small model, and they are only needed
for their gradient. So a chunk of tokens at a time goes from hidden states to logits, loss and
gradient, and its logits are dropped. The gradient is computed in the forward pass: computing chunks
again in backward would cost a third matrix product. This file imports torch alone, because the head
of every model uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Measured on a CPU, fp32: up to 4 million logits torch's own fused loss is as fast or faster;
# beyond, chunks win. They do so from half a million on where the vocabulary is not small: what
# torch makes anew for every step is then slow to write at first.
SMALL, LITTLE = 4 * 2**20, 2**19  # logits of a batch
NARROW = 1024  # logits of a token, below which LITTLE does not hold
# chunks that fill the allocator as all of a sequence do: one, one beside the results of another,
# and the last
ALIKE = 3
CHUNK = (
    4 * 2**20
)  # logits held at once, 16 MiB in fp32; fewer make the matrix products slow, more only cost memory


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    vocab_size: int | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> Tensor:
    """Sum over targets >= 0 of -log softmax(hidden W^T + b)[target], in nats: a scalar of fp32
    (float64 of float64).

    With label_smoothing e the target is (1 - e) onehot + e / vocabulary (Szegedy et al., 2016,
    arXiv:1512.00567, section 7); with z_loss c each target adds c log^2 Z, Z the sum of exp(logits)
    (Chowdhery et al., 2022, arXiv:2204.02311, section 5). With softcap s the logits are s
    tanh((hidden W^T + b) / s).

    hidden (..., dim), weight (rows, dim), target (...) of integers; a negative target is ignored.
    Rows of weight and bias from `vocab_size` on pad the vocabulary: they take no part and their
    gradient is zero. Twice differentiable it is not: a second backward raises RuntimeError. A
    target beyond the vocabulary raises torch's own index error.
    """
    return _summed(
        hidden, weight, target, None, bias, vocab_size, Terms(label_smoothing, z_loss, softcap)
    )[0]


def cross_entropies(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    vocab_size: int | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Of n streams, hidden (n, ..., dim) and target (n, ...): the sum of scale[i] times the
    cross-entropy of stream i, and the n cross-entropies, (n,), through which no gradient flows.

    The chunks of all streams run one after another into one gradient of the weight, so that more
    streams hold no more logits than one. Everything else is as in `cross_entropy`.
    """
    each = scale[:, None].expand(len(scale), target[0].numel()).flatten()
    terms = Terms(label_smoothing, z_loss, softcap)
    total, found = _summed(hidden, weight, target, each, bias, vocab_size, terms)
    return total, found.detach().view(len(scale), -1).sum(-1)


def _summed(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    vocab_size: int | None,
    terms: "Terms",
) -> tuple[Tensor, Tensor]:
    """The summed loss and, where each target has a scale (tokens,), the losses (tokens,) without
    it.
    """
    hidden, target = hidden.flatten(0, -2), target.flatten()
    vocab = len(weight) if vocab_size is None else vocab_size
    few = LITTLE if hidden.device.type == "cpu" and vocab >= NARROW else SMALL
    if len(target) * vocab <= few:
        return _at_once(hidden, weight, target, scale, bias, vocab, terms)
    parameters = (hidden, weight, bias)
    wanted = tuple(
        torch.is_grad_enabled() and p is not None and p.requires_grad for p in parameters
    )
    return _Chunked.apply(hidden, weight, bias, target, scale, vocab, wanted, terms)


_few = False  # whether only the first chunks are computed


@contextmanager
def first_chunks() -> Iterator[None]:
    """Losses and gradients of the first `ALIKE` chunks alone, which hold what all of them hold: to
    measure memory with.
    """
    global _few
    _few = True
    try:
        yield
    finally:
        _few = False


class Terms(NamedTuple):
    """What is added to the cross-entropy, zeros add nothing, and the bound of the logits."""

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float | None = None


def _at_once(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    vocab: int,
    terms: Terms,
) -> tuple[Tensor, Tensor]:
    if vocab < len(weight):
        weight, bias = weight[:vocab], None if bias is None else bias[:vocab]
    logits = F.linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    smoothing, c, cap = terms
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    how = {
        "ignore_index": -1,
        "reduction": "sum" if scale is None else "none",
        "label_smoothing": smoothing,
    }
    loss = F.cross_entropy(logits, target.clamp(min=-1), **how)  # type: ignore[arg-type]
    if c:
        squares = logits.logsumexp(-1).square().masked_fill(target < 0, 0)
        loss = loss + c * (squares.sum() if scale is None else squares)
    return loss if scale is None else (loss * scale).sum(), loss


class _Gradients(NamedTuple):
    """Of the summed loss, in fp32 or better; None where nobody asked."""

    hidden: Tensor | None  # (tokens, dim)
    weight: Tensor | None  # (rows, dim)
    bias: Tensor | None  # (rows,)


class _Chunked(torch.autograd.Function):
    """The loss, with the gradients of `_sweep` kept for backward, which only scales them."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, scale, vocab, wanted, terms):
        loss, each, gradients = _sweep(hidden, weight, bias, target, scale, vocab, wanted, terms)
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [None if p is None else p.dtype for p in (hidden, weight, bias)]
        if each is not None:
            ctx.mark_non_differentiable(each)
        return loss, each

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream, _):
        # Not in place: the graph may be kept and run backward again.
        scaled = [
            g if g is None else (g * upstream).to(d)
            for g, d in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *scaled, None, None, None, None, None


def _sweep(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    scale: Tensor | None,
    vocab: int,
    wanted: tuple[bool, ...],
    terms: Terms,
) -> tuple[Tensor, Tensor | None, _Gradients]:
    """The summed loss, that of each target where it has a scale, and the wanted gradients, chunk by
    chunk; matrix products in autocast's type, sums in fp32.
    """
    compute = _compute_dtype(hidden)
    exact = torch.promote_types(compute, torch.float32)
    tokens, loss = len(target), hidden.new_zeros((), dtype=exact)
    each = None if scale is None else hidden.new_zeros(tokens, dtype=exact)
    gradients = _Gradients(
        *(
            torch.zeros_like(p, dtype=exact) if want and p is not None else None
            for p, want in zip((hidden, weight, bias), wanted, strict=True)
        )
    )
    with torch.autocast(hidden.device.type, enabled=False):
        x, w, b = (
            hidden.to(compute),
            weight[:vocab].to(compute),
            None if bias is None else bias[:vocab].to(exact),
        )
        size = max(1, CHUNK // vocab)
        for start in range(0, min(tokens, ALIKE * size) if _few else tokens, size):
            rows = slice(start, start + size)
            by = None if scale is None else scale[rows, None].to(exact)
            found = _chunk(x[rows], w, b, target[rows], by, gradients, rows, terms)
            loss += found.sum() if by is None else (found * by).sum()
            if each is not None:
                each[rows] = found[:, 0]
    return loss, each, gradients


def _chunk(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    target: Tensor,
    scale: Tensor | None,
    gradients: _Gradients,
    rows: slice,
    terms: Terms,
) -> Tensor:
    """The losses of some tokens, (tokens, dim) x (vocab, dim) -> (tokens, 1); adds to `gradients`,
    times the scale (tokens, 1). One (tokens, vocab) buffer in fp32.

    With e = exp(logit - max) and z = sum(e): loss = log z + max - logit[target]; the gradient of
    the logits is e / z - onehot = (e - z onehot) / z, whose division is left to the narrow side of
    each product. Smoothing by s over v tokens takes (1 - s) logit[target] + s mean(logit) in place
    of logit[target], so (1 - s) onehot + s / v in place of onehot. c log^2 Z, where log Z = log z +
    max, multiplies e by 1 + 2 c log Z. A bounded logit has the slope 1 - (logit / bound)^2, which
    takes a second buffer.
    """
    smoothing, c, cap = terms
    keep, index = target[:, None] >= 0, target[:, None].clamp(min=0)
    e = (x @ w.t()).to(torch.promote_types(x.dtype, torch.float32))
    if b is not None:
        e += b
    slope = None
    if cap is not None:
        e = e.div_(cap).tanh_()
        slope, e = 1 - e.square(), e.mul_(cap)
    top, aim = e.amax(-1, keepdim=True), e.gather(-1, index)
    if smoothing:
        aim = (1 - smoothing) * aim + smoothing * e.mean(-1, keepdim=True)
    z = e.sub_(top).exp_().sum(-1, keepdim=True)
    total = z.log() + top
    loss = total - aim + c * total.square() if c else total - aim
    if any(g is not None for g in gradients):
        if c:
            e *= 1 + 2 * c * total
        if smoothing:
            e -= z * (smoothing / e.shape[-1])
        e.scatter_add_(-1, index, (smoothing - 1) * z)
        if slope is not None:
            e *= slope
        _accumulate(e, keep / z if scale is None else keep * scale / z, x, w, gradients, rows)
    return loss.masked_fill(~keep, 0)


def _accumulate(
    e: Tensor, share: Tensor, x: Tensor, w: Tensor, gradients: _Gradients, rows: slice
) -> None:
    """Add what the gradient `e * share` of the logits (tokens, vocab) makes of hidden states,
    weight and bias.
    """
    vocab = e.shape[-1]
    if gradients.bias is not None:
        gradients.bias[:vocab] += (e.t() @ share).squeeze(-1)
    if x.dtype != e.dtype:  # half precision: 1 / z would underflow on the narrow side
        e, share = e.mul_(share).to(x.dtype), torch.ones_like(share)
    if gradients.hidden is not None:
        gradients.hidden[rows] = (e @ w) * share
    if gradients.weight is not None:
        side = (x * share).to(x.dtype)
        if gradients.weight.dtype == x.dtype:
            gradients.weight[:vocab].addmm_(e.t(), side)
        else:
            gradients.weight[:vocab] += e.t() @ side


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    """What F.linear would compute in here: autocast leaves float64 alone."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return hidden.dtype
