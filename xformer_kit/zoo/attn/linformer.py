"""Attention to a fixed number of mixtures of the tokens."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS, KeyValueCache, check_heads, head_channels
from xformer_kit.kernel import Kernel
from xformer_kit.registry import above, at_least, in_range
from xformer_kit.tensors import hidden, vector
from xformer_kit.tensors.tokens import AttentionContext, Tokens
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
        self.tensors, self.length = list(new), new[0].shape[-2]
        return self.kept()


@ATTENTIONS.register("linformer", similar=("low_rank",))
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

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("heads*head_dim", "dim"),
        "v": hidden("heads*head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*head_dim", writes=True),
    }

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
        self.head_dim = head_channels(dim, heads, head_dim)
        self.rank = rank
        self.heads = heads
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.q, self.k, self.v = (nn.Linear(dim, heads * self.head_dim, bias) for _ in range(3))
        self.o = nn.Linear(heads * self.head_dim, dim, bias)
        shape = (heads if share == "none" else 1, rank, max_len)
        self.e = nn.Parameter(torch.empty(shape))
        self.f = nn.Parameter(torch.empty(shape)) if share != "key_value" else None
        info = vector("heads" if share == "none" else "1", "rank", "positions")
        self.parameter_info = {
            name: replace(info, shared_by_heads=share != "none") for name in ("e", "f")
        }
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
        if name not in ("e", "f"):
            return None
        return torch.randn(shape, generator=generator) * self.rank**-0.5

    def split(self, x: Tensor) -> Tensor:
        """(b, t, h * d) -> (b, h, t, d)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x, source, context, cache=None):
        q = context.position.rotate(self.split(self.q(x)), context.query)
        read, tokens = (x, context.query) if source is None else (source, context.key)
        texts = text_rows(tokens, len(read))
        if cache is not None and source is not None and cache.length:
            k, v = cache.kept()
        else:
            k, v = self._projected(read, texts, context, tokens)
            k, v = (k, v) if cache is None else cache.append(k, v)
        pair_context = all_pairs_context(context, self.kernel, q, k, *self._documents(texts))
        out = self.kernel(q, k, v, pair_context, self.scale, self.dropout if self.training else 0.0)
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, d) -> (b, t, dim)

    def _projected(
        self, x: Tensor, texts: TextRows, context: AttentionContext, tokens: Tokens
    ) -> list[Tensor]:
        """Keys and values of every text of x, (b, h, texts * rank, d)."""
        k = context.position.rotate_key(self.split(self.k(x)), tokens)
        pairs = (k, self.e), (self.split(self.v(x)), self.e if self.f is None else self.f)
        projected = []
        for heads, projection in pairs:
            rows = texts.to_rows(heads.transpose(1, 2).flatten(2))
            rows = rows.unflatten(-1, (-1, self.head_dim))  # (rows, n, h, d)
            e = projection[..., : texts.n].expand(rows.shape[2], -1, -1).to(rows.dtype)
            mixed = torch.einsum("hkn,rnhd->rhkd", e, rows).unflatten(0, (len(x), -1))
            # (b, texts, h, rank, d) -> (b, h, texts * rank, d)
            projected.append(mixed.transpose(1, 2).flatten(2, 3))
        return projected

    def _documents(self, texts: TextRows) -> tuple[Tensor | None, ...]:
        """The document of each projected key of packed texts, and whether it has a token, (b, texts
        * rank).
        """
        if texts.documents is None:
            return None, None
        has_token = (texts.length > 0).view(texts.documents.shape)  # type: ignore[operator]
        return tuple(x.repeat_interleave(self.rank, 1) for x in (texts.documents, has_token))

    def cache(self, rows, length):
        shape = rows, self.heads, self.rank, self.head_dim
        return ProjectedCache.of(self, shape, shape)
