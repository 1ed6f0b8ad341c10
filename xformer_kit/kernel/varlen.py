"""The varlen kernel: texts of different lengths, packed or padded, in torch's flash kernel, without
a mask tensor and without computing padding.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.kernel.base import KERNELS, KernelExplanation
from xformer_kit.kernel.sdpa import SDPA, not_softmax
from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import AttentionContext, Tokens

# Channels of a head in torch's kernel: at most MAX_HEAD_DIM, a multiple of MULTIPLE.
MAX_HEAD_DIM = 256
MULTIPLE = 8
HALF_DTYPES = torch.bfloat16, torch.float16


class Texts(NamedTuple):
    """The real tokens of a batch, ordered by text.

    indices: (tokens,), in the flattened batch; text n has starts[n] to starts[n + 1] of them.
    starts: (texts + 1,), int32.
    max_len: number of tokens of the longest text.
    """

    indices: Tensor
    starts: Tensor
    max_len: int


class VarlenCall(NamedTuple):
    """How torch's kernel is called, with the same number of texts of queries and of keys."""

    queries: Texts
    keys: Texts
    window: tuple[int, int]  # (left, right), -1 is unlimited; aligned at the end of each text
    dtype: torch.dtype


@KERNELS.register("varlen", also_called=("flash_varlen", "flash_attn_varlen"))
class Varlen(SDPA):
    """softmax(q k^T * scale) v within each text of packed documents, which are concatenated without
    padding (torch.nn.attention.varlen, on FlashAttention-2: Dao, 2023, arXiv:2307.08691). Pairs of
    tokens of different texts are never computed.

    It needs torch 2.12, CUDA and bf16 or fp16. In other precisions or on a CPU, and without
    documents and padding, it runs as `sdpa`.
    """

    speed = 0  # not measured yet, so that `auto` does not choose it

    @classmethod
    def unsupported(cls, context):
        names, attn, band = context.names, context.attn, context.mask.band
        options = context.options["attn"]
        if "bias" in context.position.enters:
            return f"position '{names['position']}' adds a bias to scores, and varlen adds none"
        if band is None:
            return f"mask '{names['mask']}' is no band of distances, and varlen computes only those"
        if context.cross and band != (math.inf, math.inf):
            return (
                f"mask '{names['mask']}' compares places of two stacks, and varlen reads a whole"
                " text of the other"
            )
        if dropout := options.get("dropout"):
            return f"attn.dropout is {dropout}, and varlen drops no weights"
        widest = max(attn.width, options.get("v_head_dim") or 0)
        if widest > MAX_HEAD_DIM:
            return f"a head has {widest} channels, and varlen computes {MAX_HEAD_DIM} at most"
        return not_softmax(context, "varlen")

    def prepare(self, context, heads, biased, dtype):
        half = half_dtype(context.query.slot.device, dtype)
        if half is None or (context.key.real is None and context.key.document is None):
            return super().prepare(context, heads, biased, dtype)
        return varlen_call(context, half)

    def needs_table(self, context: AttentionContext, biased: bool) -> bool:
        return False

    def explain(self, prepared, queries, keys, dropout):
        if isinstance(prepared, VarlenCall):
            return KernelExplanation(
                f"{len(prepared.keys.starts) - 1} texts of {prepared.keys.max_len} tokens at most,"
                " each separately"
            )
        description, saved_scores = super().explain(prepared, queries, keys, dropout)
        return KernelExplanation(f"as sdpa, {description}", saved_scores)

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        if not isinstance(context.prepared, VarlenCall):
            return super().__call__(q, k, v, context, scale, dropout, scores, score_fn)
        queries, keys, window, half = context.prepared
        width = max(q.shape[-1], v.shape[-1])
        width += -width % MULTIPLE
        flat = (
            _flat(x, texts.indices, width, half)
            for x, texts in ((q, queries), (k, keys), (v, keys))
        )
        packed_out = varlen_attention()(
            *flat,
            queries.starts,
            keys.starts,
            queries.max_len,
            keys.max_len,
            scale=scale,
            window_size=window,
            enable_gqa=k.shape[1] != q.shape[1],
        )
        rows, heads, length, _ = q.shape
        out = packed_out.new_zeros(rows * length, heads, v.shape[-1])
        out = out.index_copy(0, queries.indices, packed_out[..., : v.shape[-1]])
        return out.view(rows, length, heads, -1).transpose(1, 2).to(v.dtype)


def half_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype | None:
    """The half precision in which torch's kernel would compute tensors of `dtype`; None if there is
    no such kernel.
    """
    if device.type != "cuda":
        return None
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    return dtype if dtype in HALF_DTYPES else None


def varlen_attention() -> Any:
    """Torch's function, with fewer heads of keys than of queries. Raises ConfigError if this
    version of torch does not have it.
    """
    if torch.__version__ < (2, 12):  # type: ignore[operator]
        rule = f"'varlen' needs torch 2.12 or later; this is {torch.__version__}"
        raise config_error("kernel", rule, fix="Use kernel=auto.")
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


def varlen_call(context: AttentionContext, dtype: torch.dtype) -> VarlenCall:
    """The call for a context with queries (b, t) and keys (b, s). It reads values, once for all
    layers of an attention group.
    """
    (query_indices, query_texts), (key_indices, key_texts) = (
        _texts(tokens, context) for tokens in (context.query, context.key)
    )
    distinct, number = torch.unique(torch.cat([query_texts, key_texts]), dim=0, return_inverse=True)
    query_number, key_number = number.split([len(query_texts), len(key_texts)])
    queries = _by_text(query_indices, query_number, len(distinct))
    keys = _by_text(key_indices, key_number, len(distinct))
    left, right = (-1 if math.isinf(side) else int(side) for side in context.mask.band())
    return VarlenCall(queries, keys, (left, right), dtype)


def _by_text(indices: Tensor, text: Tensor, count: int) -> Texts:
    """indices and text (tokens,) -> indices sorted by the number of their text, 0 to count - 1."""
    lengths = torch.bincount(text, minlength=count)
    starts = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    return Texts(indices[text.argsort(stable=True)], starts, int(lengths.max()))


def _texts(tokens: Tokens, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """The indices (tokens,) of the real tokens in the flattened batch, and the text of each, its
    row and its document in the row: (tokens, 2).
    """
    slot = tokens.slot.expand(context.rows, -1)
    row = torch.arange(len(slot), device=slot.device)[:, None].expand_as(slot)
    by_document = context.query.document is not None and context.key.document is not None
    document = tokens.document.expand_as(slot) if by_document else torch.zeros_like(slot)
    indices = torch.arange(slot.numel(), device=slot.device)
    if tokens.real is not None:
        indices = indices[tokens.real.expand_as(slot).reshape(-1)]
    return indices, torch.stack([row.reshape(-1)[indices], document.reshape(-1)[indices]], -1)


def _flat(x: Tensor, indices: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """(b, h, t, d) -> (tokens, h, width): channels of zeros add nothing to a score."""
    flat = x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])[indices]
    return F.pad(flat, (0, width - x.shape[3])).to(dtype)
