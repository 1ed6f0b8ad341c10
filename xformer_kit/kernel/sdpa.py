"""The sdpa kernel: torch's scaled_dot_product_attention, with its flash and memory-efficient
implementations where they apply.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from xformer_kit.kernel import dropout as dropping
from xformer_kit.kernel.base import KERNELS, Kernel, KernelExplanation
from xformer_kit.kernel.blocks import QueryBlock, attention_table, query_blocks, slices
from xformer_kit.registry import Context, at_least
from xformer_kit.tensors.tokens import AttentionContext, Tokens

# Queries per block; each block is one call. On a CPU 64 to 128 are fastest.
CPU_BLOCK = 128
CUDA_BLOCK = 1024


class SDPACall(NamedTuple):
    """How torch's function is called.

    causal: with its own causal mask.
    dense: with this mask or bias, (1 or b, 1 or h, t, s).
    newest: with only this many newest keys, because no query attends to older ones.
    blocks: once for each of these blocks of queries.
    """

    causal: bool = False
    dense: Tensor | None = None
    newest: int | None = None
    blocks: tuple[QueryBlock, ...] = ()


@KERNELS.register("sdpa")
class SDPA(Kernel):
    """softmax(mask(q k^T * scale + bias)) v, fused. A causal or full mask needs no tensor, a window
    is computed by blocks of queries with only the keys of their window, and any other mask is one
    dense tensor for all layers.

    On a CPU, dropout of weights is computed by blocks that do not store the weights
    (`xformer_kit/kernel/dropout.py`), except in a compiled block, where torch stores them.
    """

    speed: float = 1

    def __init__(
        self,
        *,
        block: int | None = None,  # queries per block; null is 128, or 1,024 on CUDA
    ):
        self.block = block

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "query", block=1)

    @classmethod
    def unsupported(cls, context):
        return not_softmax(context, "sdpa")

    def prepare(self, context, heads, biased, dtype):
        context = context._replace(key=unpadded(context))
        if (request := call_without_table(context, biased)) is not None:
            return request
        band = context.mask.band()
        if band is None or context.cross or band == (math.inf, math.inf):
            covered = context.covers(band)
            return SDPACall(dense=attention_table(context, heads, biased, dtype, covered))
        size = self.block or (CUDA_BLOCK if context.query.slot.device.type == "cuda" else CPU_BLOCK)
        blocks = query_blocks(context, heads, biased, dtype, size)
        if len(blocks) > 1:
            return SDPACall(blocks=blocks)
        (block,) = blocks
        return SDPACall(block.causal, block.table, block.keys if block.first else None)

    def needs_table(self, context: AttentionContext, biased: bool) -> bool:
        """Whether it needs a tensor of the mask or of a bias."""
        return call_without_table(context, biased) is None

    def explain(self, prepared, queries, keys, dropout):
        description = self._describe(prepared)
        if dropping.is_supported(dropout):
            return KernelExplanation(
                f"{description}; in training on a CPU by blocks that drop weights, and compute"
                " them again for the gradient"
            )
        if not is_unfused(prepared):
            return KernelExplanation(description)
        scores = sum((b.stop - b.start) * b.keys for b in prepared.blocks)
        return KernelExplanation(description, scores or queries * keys)

    def _describe(self, prepared: SDPACall) -> str:
        """Describes how torch's function is called."""
        causal, dense, newest, blocks = prepared
        learned = (
            "; torch has no fused kernel for a learned bias on a CPU"
            if is_unfused(prepared)
            else ""
        )
        if blocks:
            keys = max(block.keys for block in blocks)
            return f"by blocks of {blocks[0].stop} queries against {keys} keys at most{learned}"
        if dense is None:
            keys_text = f", on the newest {newest} keys" if newest else ""
            return ("with torch's own causal mask" if causal else "without a mask") + keys_text
        kind = "mask" if dense.dtype == torch.bool else "bias"
        return f"with a dense {kind}, {' x '.join(map(str, dense.shape))}{learned}"

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        causal, dense, newest, blocks = context.prepared
        if newest is not None:
            k, v = k[:, :, -newest:], v[:, :, -newest:]
        if dropout and q.device.type == "cpu" and dropping.is_supported(dropout):
            single = QueryBlock(0, q.shape[2], 0, k.shape[2], causal, dense)
            return dropping.attend(q, k, v, blocks or (single,), scale, dropout)
        grouped = k.shape[1] != q.shape[1]
        if not blocks:
            return scaled_dot_product_attention(
                q, k, v, dense, dropout, causal, scale=scale, enable_gqa=grouped
            )
        parts = zip(
            q.split([b.stop - b.start for b in blocks], 2),
            slices(k, blocks),
            slices(v, blocks),
            blocks,
            strict=True,
        )
        outputs = [
            scaled_dot_product_attention(
                q, k, v, block.table, dropout, block.causal, scale=scale, enable_gqa=grouped
            )
            for q, k, v, block in parts
        ]
        return torch.cat(outputs, 2)


def not_softmax(context: Context, kernel: str) -> str | None:
    """Why a kernel that computes softmax(q k^T * scale + bias) v cannot compute the composition, or
    None.
    """
    if "scores" in context.position.enters:
        return (
            f"position '{context.names['position']}' computes scores of its own, and {kernel}"
            " computes them itself"
        )
    if (score := context.attn.score) is not None:
        return f"attn.score is {score}, and {kernel} computes only softmax"
    return None


def call_without_table(context: AttentionContext, biased: bool) -> SDPACall | None:
    """The call if it needs no mask or bias tensor, else None."""
    band = context.mask.band()
    if biased or context.key.real is not None or context.key.document is not None:
        return None
    if context.covers(band):
        return SDPACall()
    square = not context.cross and context.query.length == context.key.length
    if square and band is not None and band[1] == 0 and band[0] >= context.key.length - 1:
        return SDPACall(causal=True)
    return None


def is_unfused(request: SDPACall) -> bool:
    """Whether torch has no fused implementation, because a bias needs a gradient."""
    tables = (request.dense, *(block.table for block in request.blocks))
    return any(t is not None and t.requires_grad and t.device.type != "cuda" for t in tables)


def unpadded(context: AttentionContext) -> Tokens:
    """The context's keys (b, s), without `real` if it has no effect on real tokens: if no token
    attends to a later one and all padding is at the end of the rows.

    This reads values, and is therefore done only on a CPU, without a synchronisation.
    """
    real = context.key.real
    # Not of tensors without values, either.
    if torch.compiler.is_compiling() or type(real) is not Tensor or not real.is_cpu:
        return context.key
    if context.cross:
        return context.key
    if context.mask.sees_future or context.mask.sees_prefix or (real[:, 1:] & ~real[:, :-1]).any():
        return context.key
    return context.key._replace(real=None)
