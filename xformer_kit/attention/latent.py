"""Attention whose keys and values are read from one small latent per token, which is all that
generation keeps.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.attention.base import ATTENTIONS, Attention, check_heads, device_and_dtype
from xformer_kit.kernel import Kernel
from xformer_kit.model.cache import KeyValueCache
from xformer_kit.model.fused_projections import FusedProjections, is_plain
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import Fault, above, at_least, within


class Seen(NamedTuple):
    """What queries look at, of each token."""

    latent: Tensor  # (b, 1, s, kv_rank)
    shared: Tensor  # (b, 1, s, rope_head_dim): the decoupled key
    joined: Tensor | None = None  # both, as a cache holds them: (b, 1, s, kv_rank + rope_head_dim)


@ATTENTIONS.register("latent", also_called=("mla", "multi_head_latent", "deepseek"))
class Latent(Attention):
    """softmax(mask([q, q'] [k, k']^T * scale)) v in each head, with k = c K and v = c V read from a
    latent c = norm(x D) of kv_rank channels (DeepSeek-AI, 2024, arXiv:2405.04434, section 2.1.2 and
    2.1.3; also in DeepSeek-V3, arXiv:2412.19437).

    q' and k' = x R, of rope_head_dim channels, are the decoupled query and key, all that a position
    sees; heads share k'. A position that neither rotates nor scores leaves them as they are; with
    rope_head_dim=0 there are none. Queries are x Q, or with q_rank norm(x D_q) Q (eq. 12 and 13).
    Under yarn with `mscale_all` the scale is multiplied by (0.1 mscale_all ln(factor)
    + 1)^2, as in the authors' code. A position's `scores` are those of q' and k', to which q k^T *
    scale is added.

    The cache holds c and k', kv_rank + rope_head_dim numbers for a token. Where that takes fewer
    products, generation attends to c itself, with the queries q K^T, and maps what it reads by V
    (the absorbed form, at the end of section 2.1.2).
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        *,
        heads: int = 8,  # query heads
        head_dim: (
            int | None
        ) = None,  # channels of a head's query and key that no position sees; null is dim / heads
        rope_head_dim: (
            int | None
        ) = None,  # channels that a position sees; null is head_dim / 2, rounded up to even
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        kv_rank: (
            int | None
        ) = None,  # channels of the latent of keys and values; null is 4 * head_dim
        q_rank: int | None = None,  # channels of a latent of queries; null is none
        # whether the maps onto latents, the decoupled key and the output have biases
        bias: bool = False,
        scale: float | None = None,  # factor on scores; null is (head_dim + rope_head_dim)^-0.5
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__()
        self.head_dim = head_dim or dim // heads
        self.rope_head_dim = decoupled(self.head_dim, rope_head_dim)
        self.v_head_dim = v_head_dim or self.head_dim
        self.kv_rank = kv_rank or 4 * self.head_dim
        self.scale = (self.head_dim + self.rope_head_dim) ** -0.5 if scale is None else scale
        self.q_down = nn.Linear(dim, q_rank, bias) if q_rank else None
        self.q_norm = norm(q_rank) if q_rank else None
        self.q = nn.Linear(q_rank or dim, heads * (self.head_dim + self.rope_head_dim), False)
        self.kv_down = nn.Linear(dim, self.kv_rank, bias)
        self.kv_norm = norm(self.kv_rank)
        self.k_rope = nn.Linear(dim, self.rope_head_dim, bias) if self.rope_head_dim else None
        self.k = nn.Linear(self.kv_rank, heads * self.head_dim, False)
        self.v = nn.Linear(self.kv_rank, heads * self.v_head_dim, False)
        self.o = nn.Linear(heads * self.v_head_dim, dim, bias)
        self.kernel = kernel
        self.dropout = dropout
        self.packs = ("q_down" if q_rank else "q", "kv_down", "k_rope")[
            : 3 if self.rope_head_dim else 2
        ]

    packed: FusedProjections | None = None
    no_gradient = ("k_rope.bias",)  # unrotated, it adds the same to every score of a row

    @classmethod
    def traits(cls, options, dim):
        traits = super().traits({**options, "kv_heads": 1}, dim)
        rotated = decoupled(traits.head_dim, options.get("rope_head_dim"))
        return replace(
            traits,
            head_dim=rotated,
            head_dim_option="rope_head_dim",
            width=traits.head_dim + rotated,
        )

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", v_head_dim=1, kv_rank=1, q_rank=1)
        yield from at_least(options, "channels", rope_head_dim=0)
        yield from within(options, dropout=(0, 1))
        yield from above(options, "null is (head_dim + rope_head_dim)^-0.5.", scale=0)

    @classmethod
    def cannot(cls, options, context):
        position = context.position
        enters = "rotate" in position.enters or ("scores" in position.enters and position.channels)
        if context.attn.head_dim or not enters:
            return
        yield Fault(
            "",
            f"position '{context.names['position']}' enters through the decoupled query and key, of"
            " which rope_head_dim=0 leaves no channel",
            fix="Leave rope_head_dim out, or choose position=none, learned or alibi.",
        )

    def forward(self, x, source, context, cache=None):
        if source is None:
            first, *maps = self._maps(x, self.packs) if self.packed is None else self.packed(x)
            seen = self._looked_at(maps, context, cache)
        else:
            (first,), seen = self._maps(x, self.packs[:1]), self._across(source, context, cache)
        q, asks = self._asked(first)
        asks = context.position.rotate(asks, context.query)
        attend = self._absorbed if self._absorbs(q, seen) else self._plain
        return self.o(
            attend(q, asks, seen, context).transpose(1, 2).flatten(2)
        )  # (b, h, t, e) -> (b, t, dim)

    def queries_of(self, x: Tensor) -> Tensor:
        return self._asked(self._maps(x, self.packs[:1])[0])[1]

    def keys_of(self, x: Tensor) -> Tensor:
        return self._maps(x, ("k_rope",))[0][:, None]

    def _asked(self, first: Tensor) -> tuple[Tensor, ...]:
        """Queries (b, h, t, head_dim) and decoupled ones, (b, h, t, rope_head_dim)."""
        q = self.q(self.q_norm(first)) if self.q_down is not None else first
        q = q.unflatten(-1, (-1, self.head_dim + self.rope_head_dim)).transpose(
            1, 2
        )  # -> (b, h, t, d + r)
        return q.split([self.head_dim, self.rope_head_dim], -1)

    def _maps(self, x: Tensor, names: Sequence[str]) -> list[Tensor]:
        return [getattr(self, name)(x) for name in names]

    def _looked_at(
        self, maps: Sequence[Tensor], context: AttentionContext, cache: KeyValueCache | None
    ) -> Seen:
        """What is seen of x itself, behind that of the past."""
        latent, shared = self._latent(maps)
        shared = context.position.rotate_key(shared, context.query)
        return (
            Seen(latent, shared)
            if cache is None
            else self._kept(cache.append(torch.cat([latent, shared], -1)))
        )

    def _across(
        self, source: Tensor, context: AttentionContext, cache: KeyValueCache | None
    ) -> Seen:
        """The same of a source, which a cache computes once."""
        if cache is not None and cache.length:
            return self._kept(cache.kept())
        latent, shared = self._latent(self._maps(source, self.packs[1:]))
        shared = context.position.rotate_key(shared, context.key)
        return (
            Seen(latent, shared)
            if cache is None
            else self._kept(cache.append(torch.cat([latent, shared], -1)))
        )

    def _latent(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Normed latents (b, 1, s, kv_rank) and decoupled keys (b, 1, s, rope_head_dim), of one
        head that all share.
        """
        latent = self.kv_norm(maps[0])[:, None]
        return latent, maps[1][:, None] if self.rope_head_dim else latent[..., :0]

    def _kept(self, held: Sequence[Tensor]) -> Seen:
        latent, shared = held[0].split([self.kv_rank, self.rope_head_dim], -1)
        return Seen(latent, shared, held[0])

    def _plain(self, q: Tensor, asks: Tensor, seen: Seen, context: AttentionContext) -> Tensor:
        """Keys and values are made of the latents: (b, h, t, v_head_dim)."""
        k, v = (
            m(seen.latent[:, 0])
            .unflatten(-1, (-1, size))
            .transpose(1, 2)  # (b, s, h * d) -> (b, h, s, d)
            for m, size in ((self.k, self.head_dim), (self.v, self.v_head_dim))
        )
        if context.scored or not self.rope_head_dim:
            return self._weighted(q, k, v, asks, seen, context)
        k = torch.cat([k, seen.shared.expand(-1, k.shape[1], -1, -1)], -1)
        return self._weighted(torch.cat([q, asks], -1), k, v, asks, seen, context)

    def _absorbed(self, q: Tensor, asks: Tensor, seen: Seen, context: AttentionContext) -> Tensor:
        """The same, where queries meet the latents as keys and values that all heads share."""
        k, v = (
            m.weight.unflatten(0, (q.shape[1], -1)) for m in (self.k, self.v)
        )  # (h, d, kv_rank)
        q = torch.einsum("bhtd,hdr->bhtr", q, k.to(q.dtype))
        keys = seen.latent if context.scored else seen.joined
        out = self._weighted(
            q if context.scored else torch.cat([q, asks], -1),
            keys,
            seen.latent,
            asks,
            seen,
            context,
        )
        return torch.einsum("bhtr,hdr->bhtd", out, v.to(out.dtype))

    def _weighted(
        self, q: Tensor, k: Tensor, v: Tensor, asks: Tensor, seen: Seen, context: AttentionContext
    ) -> Tensor:
        scale, scores = self.scale * context.gain, None
        if context.scored:
            content = q @ k.mT * scale  # of one key head, or of as many as there are queries
            scores = content + context.position.scores(self, asks, seen.shared, context)
        return self.kernel(q, k, v, context, scale, self.dropout if self.training else 0.0, scores)

    def _absorbs(self, q: Tensor, seen: Seen) -> bool:
        """Whether the absorbed form is possible, in generation alone, and takes fewer products. The
        maps must be plain: not replaced, sharded or quantized.
        """
        if seen.joined is None or not (is_plain(self.k) and is_plain(self.v)):
            return False
        queries, keys, both = q.shape[2], seen.latent.shape[2], self.head_dim + self.v_head_dim
        made, absorbed = keys * self.kv_rank * both, queries * self.kv_rank * both
        return absorbed + queries * keys * 2 * self.kv_rank < made + queries * keys * both

    def cache(self, rows, length, context=None):
        device, dtype = device_and_dtype(self)
        return KeyValueCache(
            (rows, 1, length, self.kv_rank + self.rope_head_dim), dtype=dtype, device=device
        )


def decoupled(head_dim: int, wanted: int | None) -> int:
    """Channels of the decoupled query and key: as many as wanted, or half of head_dim, rounded up
    to an even number.
    """
    return -(-head_dim // 4) * 2 if wanted is None else wanted
