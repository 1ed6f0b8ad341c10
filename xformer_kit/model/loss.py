"""Cross-entropy from hidden states, of all logits at once or in chunks.

The logits of a large vocabulary are the largest tensor of a small model, and they are only needed
for their gradient. In chunks logits, loss and gradient are computed for some tokens at a time, so
that all logits never exist at once; the gradient is computed in the forward pass: recomputing
chunks in backward would cost a third matrix product. `chunk_tokens` is the rule that chooses. This
file imports only torch, because the head of every model uses it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Measured in fp32 on a CPU: up to 4 million logits torch's fused loss is at least as fast as
# chunks. With a vocabulary of at least MIN_VOCAB_CPU chunks are faster from half a million on,
# because torch's new tensors are slow to write at first.
MAX_UNCHUNKED = 4 * 2**20  # logits of a batch
MAX_UNCHUNKED_CPU = 2**19
MIN_VOCAB_CPU = 1024
# On CUDA all logits at once are faster: 16,384 x 50,304 logits in bf16 took 14 ms on an H100, not
# compiled, in chunks 22 ms. The share itself has not been measured.
MAX_SHARE_CUDA = 1 / 8  # of the device's memory, for the fp32 logits and their gradient
# Number of chunks that need as much memory as all: the first, the second next to the results of the
# first, and the last.
FIRST_CHUNKS = 3
# Logits that exist at once, 16 MiB in fp32. Smaller chunks make matrix products slow, larger ones
# only need more memory.
CHUNK = 4 * 2**20
# On a GPU: each chunk reads and writes the whole gradient of the weight, which takes 0.16 ms for
# 50,304 x 768 on an H100. The matrix products of a chunk of CHUNK, 83 tokens, take 0.12 ms.
CHUNK_GPU = 64 * 2**20
MIN_TOKENS_GPU = 2048


class Device(NamedTuple):
    """A device on which the loss is computed."""

    type: str  # cpu, cuda, ...
    memory: int = 0  # bytes in total, of CUDA


def loss_device(device: torch.device) -> Device:
    """Returns the type and the memory of a device of torch."""
    if device.type != "cuda":
        return Device(device.type)
    return Device("cuda", torch.cuda.get_device_properties(device).total_memory)


def chunk_tokens(tokens: int, vocab: int, device: Device) -> int | None:
    """Returns the number of tokens of a chunk; None if all logits are computed at once.

    On CUDA all logits are computed at once while 8 bytes for each, the fp32 logit and its gradient,
    are at most MAX_SHARE_CUDA of the device's memory.
    """
    logits, on_cpu = tokens * vocab, device.type == "cpu"
    if 2 * 4 * logits <= MAX_SHARE_CUDA * device.memory:
        return None
    if logits <= (MAX_UNCHUNKED_CPU if on_cpu and vocab >= MIN_VOCAB_CPU else MAX_UNCHUNKED):
        return None
    return max(1, CHUNK // vocab) if on_cpu else max(MIN_TOKENS_GPU, CHUNK_GPU // vocab)


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    vocab_size: int | None = None,
    scale: Tensor | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    functions: "LossFunctions | None" = None,
) -> Any:
    """Sum over targets >= 0 of -log softmax(hidden W^T + b)[target], in nats: a scalar of fp32
    (float64 of float64).

    With label_smoothing e the target is (1 - e) onehot + e / vocabulary (Szegedy et al., 2016,
    arXiv:1512.00567, section 7); with z_loss c each target adds c log^2 Z, Z the sum of exp(logits)
    (Chowdhery et al., 2022, arXiv:2204.02311, section 5). With softcap s the logits are s
    tanh((hidden W^T + b) / s).

    hidden (..., dim), weight (rows, dim), target (...) of integers; negative targets are ignored.
    Rows of weight and bias from `vocab_size` on are not used, and their gradient is zero. In
    chunks it is not twice differentiable: a double backward raises RuntimeError. A target outside
    the vocabulary raises torch's index error.

    With scale (n,), hidden (n, ..., dim) and target (n, ...) are n streams: returns the sum of
    scale[i] times the cross-entropy of stream i, and the n cross-entropies, (n,), without gradient.
    The chunks of all streams are computed one after another and add to one gradient of the weight,
    so that n streams need no more logits at once than one.

    functions: compiled ones; None: `UNCOMPILED`.
    """
    vocab = len(weight) if vocab_size is None else vocab_size
    token_scale = None if scale is None else scale.repeat_interleave(target[0].numel())
    hidden, target = hidden.flatten(0, -2), target.flatten()
    terms, functions = Terms(label_smoothing, z_loss, softcap), functions or UNCOMPILED
    chunk = chunk_tokens(len(target), vocab, _estimated_device or loss_device(hidden.device))
    if chunk is None:
        total, losses = functions.plain(hidden, weight, target, token_scale, bias, vocab, terms)
    else:
        needs_grad = tuple(
            torch.is_grad_enabled() and p is not None and p.requires_grad
            for p in (hidden, weight, bias)
        )
        chunks = Chunks(chunk, vocab, needs_grad, terms, functions.chunk)
        total, losses = _ChunkedLoss.apply(hidden, weight, bias, target, token_scale, chunks)
    return total if scale is None else (total, losses.detach().view(len(scale), -1).sum(-1))


_estimated_device: Device | None = None  # of `first_chunks`


@contextmanager
def first_chunks(device: Device) -> Iterator[None]:
    """Computes the loss as on another device in this context, and of its chunks only the first
    FIRST_CHUNKS, to estimate the memory.
    """
    global _estimated_device
    _estimated_device = device
    try:
        yield
    finally:
        _estimated_device = None


class Terms(NamedTuple):
    """Label smoothing and z-loss, 0 for none, and the bound of the logits, None for none."""

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float | None = None


class Chunks(NamedTuple):
    """How a loss is computed in chunks."""

    tokens: int  # of a chunk
    vocab: int
    needs_grad: tuple[bool, ...]  # of hidden states, weight and bias
    terms: Terms
    function: Callable[..., Tensor]  # `_chunk_loss`


def _plain_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    vocab: int,
    terms: Terms,
) -> tuple[Tensor, Tensor]:
    """Returns the summed loss and that of each target, of all logits at once."""
    if vocab < len(weight):
        weight, bias = weight[:vocab], None if bias is None else bias[:vocab]
    logits = F.linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    smoothing, c, cap = terms
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    options = {
        "ignore_index": -1,
        "reduction": "sum" if scale is None else "none",
        "label_smoothing": smoothing,
    }
    loss = F.cross_entropy(logits, target.clamp(min=-1), **options)  # type: ignore[arg-type]
    if c:
        squares = logits.logsumexp(-1).square().masked_fill(target < 0, 0)
        loss = loss + c * (squares.sum() if scale is None else squares)
    return loss if scale is None else (loss * scale).sum(), loss


class _Gradients(NamedTuple):
    """Gradients of the summed loss, in at least fp32; None if not needed."""

    hidden: Tensor | None  # (tokens, dim)
    weight: Tensor | None  # (rows, dim)
    bias: Tensor | None  # (rows,)


class _ChunkedLoss(torch.autograd.Function):
    """The autograd function: saves the gradients of `_chunked_loss`; backward only scales them."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, scale, chunks):
        """Arguments and results of `_chunked_loss`, without the gradients: the summed loss, a
        scalar, and the loss of each target, (tokens,), or None.
        """
        loss, losses, gradients = _chunked_loss(hidden, weight, bias, target, scale, chunks)
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [None if p is None else p.dtype for p in (hidden, weight, bias)]
        if losses is not None:
            ctx.mark_non_differentiable(losses)
        return loss, losses

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream, _):
        # Not in place: the graph may be retained for another backward.
        scaled = [
            g if g is None else (g * upstream).to(d)
            for g, d in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *scaled, None, None, None


def _chunked_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    scale: Tensor | None,
    chunks: Chunks,
) -> tuple[Tensor, Tensor | None, _Gradients]:
    """Computes the summed loss, with a scale also the loss of each target, and the needed
    gradients, chunk by chunk. Matrix products are in autocast's dtype, sums in at least fp32.
    """
    compute = _compute_dtype(hidden)
    exact = torch.promote_types(compute, torch.float32)
    tokens, loss = len(target), hidden.new_zeros((), dtype=exact)
    losses = None if scale is None else hidden.new_zeros(tokens, dtype=exact)
    gradients = _Gradients(
        *(
            torch.zeros_like(p, dtype=exact) if needed and p is not None else None
            for p, needed in zip((hidden, weight, bias), chunks.needs_grad, strict=True)
        )
    )
    with torch.autocast(hidden.device.type, enabled=False):
        x, w = hidden.to(compute), weight[: chunks.vocab].to(compute)
        b = None if bias is None else bias[: chunks.vocab].to(exact)
        size = chunks.tokens
        end = min(tokens, FIRST_CHUNKS * size) if _estimated_device else tokens
        for start in range(0, end, size):
            rows = slice(start, start + size)
            row_scale = None if scale is None else scale[rows, None].to(exact)
            of_hidden = None if gradients.hidden is None else gradients.hidden[rows]
            sums = gradients._replace(hidden=of_hidden)
            chunk = chunks.function(x[rows], w, b, target[rows], row_scale, sums, chunks.terms)
            # Not in place: torch 2.11 compiles a function without gradients if its output is
            # changed in place.
            loss = loss + (chunk if row_scale is None else chunk * row_scale).sum()
            if losses is not None:
                losses[rows] = chunk[:, 0]
    return loss, losses, gradients


def _chunk_loss(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    target: Tensor,
    scale: Tensor | None,
    gradients: _Gradients,
    terms: Terms,
) -> Tensor:
    """Returns the losses of a chunk, (tokens, dim) x (vocab, dim) -> (tokens, 1). Writes their
    gradients, times the scale (tokens, 1), to `gradients`: those of weight and bias are added. One
    (tokens, vocab) buffer in fp32, next to one of logits in half precision.

    With e = exp(logit - m) and z = sum(e): loss = log z + m - logit[target]; the gradient of the
    logits is e / z - onehot = (e - z onehot) / z, in which the division is applied to the
    smaller factor of each product. Smoothing by s over v tokens replaces logit[target] by (1 - s)
    logit[target] + s mean(logit), and onehot by (1 - s) onehot + s / v. c log^2 Z, where log Z =
    log z + m, multiplies e by 1 + 2 c log Z. The derivative of a bounded logit is 1 - (logit /
    bound)^2, which needs a second buffer.
    """
    smoothing, c, cap = terms
    keep, index = target[:, None] >= 0, target[:, None].clamp(min=0)
    e, exact = x @ w.t(), torch.promote_types(x.dtype, torch.float32)
    if b is not None:
        e = e.to(exact).add_(b)
    slope = None
    if cap is not None:
        e = e.to(exact).div_(cap).tanh_()
        slope, e = 1 - e.square(), e.mul_(cap)
    target_logit = e.gather(-1, index).to(exact)
    if smoothing:
        mean = e.mean(-1, keepdim=True, dtype=exact)
        target_logit = (1 - smoothing) * target_logit + smoothing * mean
    e, z, total = _exponentials(e, in_place=x.dtype == exact)
    loss = total - target_logit + c * total.square() if c else total - target_logit
    if any(g is not None for g in gradients):
        if c:
            e *= 1 + 2 * c * total
        if smoothing:
            e -= z * (smoothing / e.shape[-1])
        e.scatter_add_(-1, index, (smoothing - 1) * z)
        if slope is not None:
            e *= slope
        _accumulate(e, keep / z if scale is None else keep * scale / z, x, w, gradients)
    return loss.masked_fill(~keep, 0)


def _exponentials(logits: Tensor, in_place: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns e = exp(logits - m) in at least fp32, z = sum(e) and log Z = log z + m, for one m per
    token: the maximum, or log Z itself.
    """
    if in_place:  # a new buffer is slow to write on a CPU
        m = logits.amax(-1, keepdim=True)
        z = logits.sub_(m).exp_().sum(-1, keepdim=True)
        return logits, z, z.log() + m
    # One kernel reads half precision and writes fp32, which halves the memory traffic on a GPU.
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    total = logits[:, :1] - log_p[:, :1]
    return log_p.exp_(), torch.ones_like(total), total


def _accumulate(e: Tensor, share: Tensor, x: Tensor, w: Tensor, gradients: _Gradients) -> None:
    """Writes the gradients of hidden states, and adds those of weight and bias, for the gradient
    `e * share` of the logits (tokens, vocab).
    """
    vocab = e.shape[-1]
    if gradients.bias is not None:
        gradients.bias[:vocab] += (e.t() @ share).squeeze(-1)
    e = e.to(x.dtype)
    if gradients.hidden is not None:
        gradients.hidden.copy_((e @ w) * share)
    if gradients.weight is not None:
        scaled_x = (x * share).to(x.dtype)
        if gradients.weight.dtype == x.dtype:
            gradients.weight[:vocab].addmm_(e.t(), scaled_x)
        else:
            gradients.weight[:vocab] += e.t() @ scaled_x


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    """The dtype of F.linear here: that of autocast, which does not change float64."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return hidden.dtype


class LossFunctions(NamedTuple):
    """The functions that `torch.compile` may replace: one graph of each, not of all chunks."""

    plain: Callable[..., tuple[Tensor, Tensor]] = _plain_loss
    chunk: Callable[..., Tensor] = _chunk_loss


UNCOMPILED = LossFunctions()
