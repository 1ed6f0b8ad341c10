"""Attention to a fixed number of mixtures of the tokens."""

from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS, KeyValueCache, check_heads, device_and_dtype
from xformer_kit.kernel import Kernel
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import above, at_least, in_range
from xformer_kit.zoo.attn._whole_text import (
    BREAKS,
    TextRows,
    WholeTextAttention,
    all_pairs_context,
    text_rows,
)


class ProjectedCache(KeyValueCache):
    """Projected keys and values of a source, stored in one call."""

    def append(self, *new):
        self.held, self.length = list(new), new[0].shape[-2]
        return self.kept()


@ATTENTIONS.register("linformer", also_called=("low_rank",))
class Linformer(WholeTextAttention):
    """softmax(q (E k)^T * scale) (F v) in each head, where E and F, rank x max_len, mix the tokens
    of a text into `rank` keys and values (Wang et al., 2020, arXiv:2006.04768, eq. 7). Memory and
    time are linear in the length.

    share: `heads` have one E and one F for all heads of a layer, `key_value` also E = F, `none` a
    pair for each head (section 4, "additional efficiency techniques"). A text of n tokens uses the
    first n columns. Cross attention is supported; the source is projected once. Positions may
    rotate: a projected key is a sum of rotated keys.
    """

    variants = [{"rank": 3, "share": "none", "bias": True, "scale": 0.3}]
    breaks = BREAKS | {
        "symmetry": "a column of E and F belongs to a place in the text",
        "source order": "a column of E and F belongs to a place in the text",
    }
    enters = ("embed", "rotate")
    bounded = True

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        max_len: int,
        *,
        heads: int = 8,  # heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        rank: int = 64,  # number of projected keys and values of a text: the paper's k
        share: Literal["none", "heads", "key_value"] = "heads",  # which projections are shared
        bias: bool = False,  # whether the four maps of channels have biases
        scale: float | None = None,  # factor on scores; null is head_dim^-0.5
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__()
        self.head_dim = head_dim or dim // heads
        self.rank = rank
        self.heads = heads
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.q, self.k, self.v = (nn.Linear(dim, heads * self.head_dim, bias) for _ in range(3))
        self.o = nn.Linear(heads * self.head_dim, dim, bias)
        shape = (heads if share == "none" else 1, rank, max_len)
        self.e = nn.Parameter(torch.empty(shape))
        self.f = nn.Parameter(torch.empty(shape)) if share != "key_value" else None
        self.kernel = kernel
        self.dropout = dropout

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "key", rank=1)
        yield from in_range(options, dropout=(0, 1))
        yield from above(options, "null is head_dim^-0.5.", scale=0)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """N(0, 1 / rank) for E and F, which preserves products on average (theorem 1)."""
        return (
            torch.randn(shape, generator=generator) * self.rank**-0.5
            if name in ("e", "f")
            else None
        )

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (b, t, h * d) -> (b, h, t, d)

    def forward(self, x, source, context, cache=None):
        q, kept = self.split(self.q(x)), cache is not None and source is not None and cache.length
        q = context.position.rotate(q, context.query)
        seen, tokens = (x, context.query) if source is None else (source, context.key)
        texts = text_rows(tokens, len(seen))
        k, v = cache.kept() if kept else self._projected(seen, texts, context, source is not None)
        if cache is not None and not kept:
            k, v = cache.append(k, v)
        pair_context = all_pairs_context(
            context, self.kernel, q, k, *self._documents(texts, context)
        )
        out = self.kernel(q, k, v, pair_context, self.scale, self.dropout if self.training else 0.0)
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, d) -> (b, t, dim)

    def _projected(
        self, seen: Tensor, texts: TextRows, context: AttentionContext, across: bool
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of every text, (b, h, texts * rank, d)."""
        k = context.position.rotate_key(
            self.split(self.k(seen)), context.key if across else context.query
        )
        pairs = (k, self.e), (self.split(self.v(seen)), self.e if self.f is None else self.f)
        made = []
        for x, projection in pairs:
            row = texts.to_rows(x.transpose(1, 2).flatten(2)).unflatten(
                -1, (-1, self.head_dim)
            )  # (rows, n, h, d)
            e = projection[..., : texts.n].expand(row.shape[2], -1, -1).to(row.dtype)
            mixed = torch.einsum("hkn,rnhd->rhkd", e, row).unflatten(0, (len(seen), -1))
            made.append(
                mixed.transpose(1, 2).flatten(2, 3)
            )  # (b, texts, h, rank, d) -> (b, h, texts * rank, d)
        return made[0], made[1]

    def _documents(
        self, texts: TextRows, context: AttentionContext
    ) -> tuple[Tensor | None, Tensor | None]:
        """The document of each projected key of packed texts, and whether it has a token, (b, texts
        * rank).
        """
        if texts.documents is None:
            return None, None
        has_token = (texts.length > 0).view(texts.documents.shape)  # type: ignore[operator]
        return (
            texts.documents.repeat_interleave(self.rank, 1),
            has_token.repeat_interleave(self.rank, 1),
        )

    def cache(self, rows, length, context=None):
        device, dtype = device_and_dtype(self)
        return ProjectedCache(
            *[(rows, self.heads, self.rank, self.head_dim)] * 2, dtype=dtype, device=device
        )
