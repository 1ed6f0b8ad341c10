"""Torch's scaled_dot_product_attention: flash and memory-efficient kernels where the request allows
them.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from xformer_kit.kernel import dropout as dropping
from xformer_kit.kernel.base import KERNELS, Explanation, Kernel, covers
from xformer_kit.kernel.blocks import QueryBlock, cut, slices, table
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.registry import Context, Fault, at_least

ROWS, ROWS_ON_CUDA = (
    128,
    1024,
)  # queries of a block: 64 to 128 measured fastest on a CPU; each block is a call


class Request(NamedTuple):
    """How torch's function is called: with its own causal mask, with one table for all, by blocks,
    or with nothing.
    """

    causal: bool = False
    dense: Tensor | None = None
    # keys that are seen at all, where older ones are not: a number that no step of generation
    # changes
    newest: int | None = None
    blocks: tuple[QueryBlock, ...] = ()


@KERNELS.register("sdpa", also_called=("flash", "torch"))
class SDPA(Kernel):
    """The same equation, fused. A causal or full mask costs nothing, a window is computed by blocks
    of queries that meet only the keys of their window, and any other mask is one dense tensor for
    all layers.

    On a CPU dropout of weights is computed by blocks too, and keeps no weights
    (`xformer_kit/kernel/dropout.py`), but for a compiled block, where torch's own way keeps them.
    """

    speed: float = 1

    def __init__(
        self,
        *,
        block: (
            int | None
        ) = None,  # queries that meet one slice of the keys; null: 128, or 1,024 on CUDA
    ):
        self.block = block

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "query", block=1)

    @classmethod
    def cannot(cls, options, context):
        if reason := beyond_softmax(context, "sdpa"):
            yield Fault("", reason)

    def prepare(self, context, heads, biased, dtype):
        context = context._replace(key=unpadded(context))
        if (request := bare(context, biased)) is not None:
            return request
        band = context.mask.band()
        if band is None or context.cross or band == (math.inf, math.inf):
            return Request(dense=table(context, heads, biased, dtype, covers(context, band)))
        size = self.block or (ROWS_ON_CUDA if context.query.slot.device.type == "cuda" else ROWS)
        blocks = cut(context, heads, biased, dtype, size)
        if len(blocks) > 1:
            return Request(blocks=blocks)
        (block,) = blocks
        return Request(block.causal, block.table, block.keys if block.first else None)

    def tabled(self, context: AttentionContext, biased: bool) -> bool:
        """Whether it needs a table of what is seen, or of a bias."""
        return bare(context, biased) is None

    def explain(self, prepared, queries, keys, dropout):
        how = self.described(prepared)
        if dropping.able(dropout):
            return Explanation(
                f"{how}; in training on a CPU by blocks that drop weights, and compute them again"
                " for the gradient"
            )
        if not unfused(prepared):
            return Explanation(how)
        scores = sum((b.stop - b.start) * b.keys for b in prepared.blocks)
        return Explanation(how, scores or queries * keys)

    def described(self, prepared: Request) -> str:
        """How torch's function is called, in a few words."""
        causal, dense, newest, blocks = prepared
        learned = (
            "; torch has no fused kernel for a learned bias on a CPU" if unfused(prepared) else ""
        )
        if blocks:
            most = max(block.keys for block in blocks)
            return f"by blocks of {blocks[0].stop} queries against {most} keys at most{learned}"
        if dense is None:
            some = f", on the newest {newest} keys" if newest else ""
            return ("with torch's own causal mask" if causal else "without a mask") + some
        what = "mask" if dense.dtype == torch.bool else "bias"
        return f"with a dense {what}, {' x '.join(map(str, dense.shape))}{learned}"

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, weigh=None):
        causal, dense, newest, blocks = context.prepared
        if newest is not None:
            k, v = k[:, :, -newest:], v[:, :, -newest:]
        if dropout and q.device.type == "cpu" and dropping.able(dropout):
            whole = QueryBlock(0, q.shape[2], 0, k.shape[2], causal, dense)
            return dropping.attend(q, k, v, blocks or (whole,), scale, dropout)
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
        some = [
            scaled_dot_product_attention(
                q, k, v, block.table, dropout, block.causal, scale=scale, enable_gqa=grouped
            )
            for q, k, v, block in parts
        ]
        return some[0] if len(some) == 1 else torch.cat(some, 2)


def beyond_softmax(context: Context, kernel: str) -> str | None:
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


def bare(context: AttentionContext, biased: bool) -> Request | None:
    """How torch's function is called where it needs no table; None: it needs one."""
    band = context.mask.band()
    if biased or context.key.real is not None or context.key.document is not None:
        return None
    if covers(context, band):
        return Request()
    whole = not context.cross and context.query.length == context.key.length
    if whole and band is not None and band[1] == 0 and band[0] >= context.key.length - 1:
        return Request(causal=True)
    return None


def unfused(request: Request) -> bool:
    """Whether torch computes it step by step, for the gradient of a bias."""
    tables = (request.dense, *(block.table for block in request.blocks))
    return any(t is not None and t.requires_grad and t.device.type != "cuda" for t in tables)


def unpadded(context: AttentionContext) -> Tokens:
    """The context's keys, without `real` where it hides nothing that matters: where no token sees a
    later one, and padding stands behind all tokens, only padding sees padding.

    That is read from values, so only on a CPU: elsewhere reading them waits for the device.
    """
    real = context.key.real
    if (
        type(real) is not Tensor or real.device.type != "cpu" or context.cross
    ):  # also not of tensors without values
        return context.key
    if context.mask.sees_future or context.mask.sees_prefix or (real[:, 1:] & ~real[:, :-1]).any():
        return context.key
    return context.key._replace(real=None)
