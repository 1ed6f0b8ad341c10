"""Texts of any length beside each other: packed documents without a table, and without padding, in
torch's flash kernel.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.kernel.base import KERNELS, Explanation
from xformer_kit.kernel.sdpa import SDPA, beyond_softmax
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.registry import Fault, config_error

WIDEST, STEP = 256, 8  # channels of a head in torch's kernel: at most, and in multiples of
HALVES = torch.bfloat16, torch.float16


class Texts(NamedTuple):
    """Real tokens ordered text by text: those of text n are `starts[n]` to `starts[n + 1]` of
    `places`, which are numbers of tokens in the flattened batch.
    """

    places: Tensor
    starts: Tensor
    longest: int


class Packed(NamedTuple):
    """How torch's kernel is called: the texts of queries and of keys, one to one, and its window
    (left, right), -1 without end, counted from the end of both.
    """

    queries: Texts
    keys: Texts
    window: tuple[int, int]
    dtype: torch.dtype


@KERNELS.register("varlen", also_called=("flash_varlen", "flash_attn_varlen"))
class Varlen(SDPA):
    """The same equation over packed documents, each computed alone: softmax(q k^T * scale) v over
    the tokens of one text, laid end to end (torch.nn.attention.varlen, on FlashAttention-2: Dao,
    2023, arXiv:2307.08691). Padding is left out. No table of pairs is held, and pairs of different
    texts are never computed.

    That is so on CUDA in bf16 or fp16. Elsewhere, and where nothing is packed or padded, it runs as
    `sdpa` does.
    """

    speed = 0  # no device has measured it: who wants it says so

    @classmethod
    def cannot(cls, options, context):
        names, attn = context.names, context.attn
        if "bias" in context.position.enters:
            yield Fault(
                "", f"position '{names['position']}' adds a bias to scores, and varlen adds none"
            )
            return
        band = context.mask.band
        if band is None:
            yield Fault(
                "",
                f"mask '{names['mask']}' is no band of distances, and varlen computes only those",
            )
            return
        if context.cross and band != (math.inf, math.inf):
            yield Fault(
                "",
                f"mask '{names['mask']}' compares places of two stacks, and varlen sees a whole"
                " text of the other",
            )
            return
        if dropout := context.options["attn"].get("dropout"):
            yield Fault("", f"attn.dropout is {dropout}, and varlen drops no weights")
            return
        widest = max(attn.width, context.options["attn"].get("v_head_dim") or 0)
        if widest > WIDEST:
            yield Fault("", f"a head has {widest} channels, and varlen computes {WIDEST} at most")
            return
        if reason := beyond_softmax(context, "varlen"):
            yield Fault("", reason)

    def prepare(self, context, heads, biased, dtype):
        half = halved(context.query.slot.device, dtype)
        if half is None or (context.key.real is None and context.key.document is None):
            return super().prepare(context, heads, biased, dtype)
        return packed(context, half)

    def tabled(self, context: AttentionContext, biased: bool) -> bool:
        return False

    def explain(self, prepared, queries, keys, dropout):
        if isinstance(prepared, Packed):
            return Explanation(
                f"{len(prepared.keys.starts) - 1} texts of {prepared.keys.longest} tokens at most,"
                " each alone"
            )
        how, kept = super().explain(prepared, queries, keys, dropout)
        return Explanation(f"as sdpa, {how}", kept)

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, weigh=None):
        if not isinstance(context.prepared, Packed):
            return super().__call__(q, k, v, context, scale, dropout, scores, weigh)
        queries, keys, window, half = context.prepared
        width = max(q.shape[-1], v.shape[-1])
        width += -width % STEP
        flat = (
            _flat(x, texts.places, width, half) for x, texts in ((q, queries), (k, keys), (v, keys))
        )
        around = {"scale": scale, "window_size": window, "enable_gqa": k.shape[1] != q.shape[1]}
        found = attention()(
            *flat, queries.starts, keys.starts, queries.longest, keys.longest, **around
        )
        rows, heads, length, _ = q.shape
        out = found.new_zeros(rows * length, heads, v.shape[-1])
        out = out.index_copy(0, queries.places, found[..., : v.shape[-1]])
        return out.view(rows, length, heads, -1).transpose(1, 2).to(v.dtype)


def halved(device: torch.device, dtype: torch.dtype) -> torch.dtype | None:
    """The half precision in which torch's kernel would compute what comes in `dtype`; None where
    there is no such kernel.
    """
    if device.type != "cuda":
        return None
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    return dtype if dtype in HALVES else None


def attention() -> Any:
    """Torch's function. Raises ConfigError where this torch has none with a window and a scale."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise config_error(
            "kernel",
            f"'varlen' needs torch 2.11 or later; this is {torch.__version__}",
            fix="Use kernel=auto.",
        ) from error
    return varlen_attn


def packed(context: AttentionContext, dtype: torch.dtype) -> Packed:
    """The texts of a context. This reads values, once for all layers that look alike."""
    rows = max(
        field.shape[0]
        for tokens in (context.query, context.key)
        for field in tokens
        if field is not None
    )
    named = [_texts(tokens, rows, context) for tokens in (context.query, context.key)]
    names, which = torch.unique(torch.cat([text for _, text in named]), dim=0, return_inverse=True)
    found = []
    for (places, _), text in zip(
        named, which.split([len(places) for places, _ in named]), strict=True
    ):
        count = torch.bincount(text, minlength=len(names))
        starts = F.pad(count.cumsum(0), (1, 0)).to(torch.int32)
        found.append(Texts(places[text.argsort(stable=True)], starts, int(count.max())))
    back, ahead = (-1 if math.isinf(side) else int(side) for side in context.mask.band())
    queries, keys = found
    if (back, ahead) != (-1, -1):
        _in_order(context, keys)
    return Packed(queries, keys, (back, ahead), dtype)


def _texts(tokens: Tokens, rows: int, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """Numbers of the real tokens in the flattened batch, and the text of each: its row, and its
    document in it.
    """
    slot = tokens.slot.expand(rows, -1)
    row = torch.arange(rows, device=slot.device)[:, None].expand_as(slot)
    apart = context.query.document is not None and context.key.document is not None
    document = tokens.document.expand_as(slot) if apart else torch.zeros_like(slot)
    places = torch.arange(slot.numel(), device=slot.device)
    if tokens.real is not None:
        places = places[tokens.real.expand_as(slot).reshape(-1)]
    return places, torch.stack([row.reshape(-1)[places], document.reshape(-1)[places]], -1)


def _in_order(context: AttentionContext, keys: Texts) -> None:
    """Raises ConfigError where a distance in a text is not the number of real tokens between:
    padding within a window.
    """
    rows = int(keys.places.max()) // context.key.length + 1
    slot = context.key.slot.expand(rows, -1).reshape(-1)[keys.places]  # type: ignore[union-attr]
    inner = torch.ones_like(slot, dtype=torch.bool)
    inner[keys.starts[:-1][keys.starts.diff() > 0].long()] = False
    if math.isfinite(context.mask.band()[0]) and (slot.diff(prepend=slot[:1])[inner] != 1).any():
        raise config_error(
            "real",
            "padding stands within a text, and kernel 'varlen' counts a window in real tokens",
            fix="Put padding at the ends, or use kernel=auto.",
        )


def _flat(x: Tensor, places: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """(b, h, t, d) -> (tokens, h, width): channels of zeros add nothing to a score."""
    flat = x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])[places]
    return F.pad(flat, (0, width - x.shape[3])).to(dtype)
