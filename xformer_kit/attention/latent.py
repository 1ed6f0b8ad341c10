"""Multi-head latent attention: keys and values are projections of one small latent per token, and
only the latent is cached.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.attention.base import ATTENTIONS, Attention
from xformer_kit.attention.heads import check_heads, head_channels
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault, OptionGroup, above, at_least, in_range
from xformer_kit.tensors import SubmoduleInfo, hidden, vector
from xformer_kit.tensors.cache import KeyValueCache
from xformer_kit.tensors.fused_projections import is_plain
from xformer_kit.tensors.tokens import AttentionContext, Tokens, scaled_products


class LatentKV(NamedTuple):
    """Latents and rotary keys of the tokens that queries attend to."""

    latent: Tensor  # (b, 1, s, kv_rank)
    rope_key: Tensor  # (b, 1, s, rope_head_dim): the decoupled key
    joined: Tensor | None = None  # both, as cached: (b, 1, s, kv_rank + rope_head_dim)


@dataclass(frozen=True)
class LatentShape(OptionGroup):
    """Numbers of heads, of their channels, and of those of latents."""

    heads: int = 8  # query heads
    # channels of a head's query and key without position encoding; null is dim / heads
    head_dim: int | None = None
    # channels of a head's decoupled query and key; null is head_dim / 2, rounded up to even
    rope_head_dim: int | None = None
    v_head_dim: int | None = None  # channels of a head's values; null is head_dim
    # channels of the latent of keys and values; null is 4 * head_dim
    kv_rank: int | None = None
    q_rank: int | None = None  # channels of a latent of queries; null is none


EIGHT_HEADS = LatentShape()


@ATTENTIONS.register("latent", also_called=("mla", "multi_head_latent"))
class Latent(Attention):
    """softmax(mask([q, q'] [k, k']^T * scale)) v in each head, with k = c K and v = c V computed
    from a latent c = norm(x D) of kv_rank channels (DeepSeek-AI, 2024, arXiv:2405.04434, section
    2.1.2 and 2.1.3; also in DeepSeek-V3, arXiv:2412.19437).

    q' and k' = x R, of rope_head_dim channels, are the decoupled query and key, on which the
    position encoding acts; heads share k'. With rope_head_dim=0 there are none. Queries are x Q, or
    with q_rank norm(x D_q) Q (eq. 12 and 13). Under yarn with `mscale_all` the scale is multiplied
    by (0.1 mscale_all ln(factor) + 1)^2, as in the authors' code. A position's `scores` are those
    of q' and k', to which q k^T * scale is added.

    The cache holds c and k', kv_rank + rope_head_dim numbers per token. If that takes fewer
    operations, generation attends to c with the queries q K^T, and multiplies the result by V (the
    absorbed form, at the end of section 2.1.2).
    """

    parameter_info = {
        "q_down": hidden("q_rank", "dim", shared_by_heads=True),
        "q_norm": SubmoduleInfo({"normalised": "q_rank"}, shared_by_heads=True),
        "kv_down": hidden("kv_rank", "dim", shared_by_heads=True),
        "kv_norm": SubmoduleInfo({"normalised": "kv_rank"}, shared_by_heads=True),
        "k_rope": hidden("rope_head_dim", "dim", shared_by_heads=True),
        # Without rotation it adds the same number to all scores of a row.
        "k_rope.bias": vector("rope_head_dim", bias=True, zero_gradient=True, shared_by_heads=True),
        "k": hidden("heads*head_dim", "kv_rank"),
        "v": hidden("heads*v_head_dim", "kv_rank", scales_output=True),
        "o": hidden("dim", "heads*v_head_dim", writes=True),
    }

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        *,
        shape: LatentShape = EIGHT_HEADS,
        # whether the maps onto latents, the decoupled key and the output have biases
        bias: bool = False,
        # eps of the norms of latents; null is that of the block's norms
        norm_eps: float | None = None,
        scale: float | None = None,  # factor on scores; null is (head_dim + rope_head_dim)^-0.5
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__()
        heads, q_rank = shape.heads, shape.q_rank
        self.head_dim = head_channels(dim, heads, shape.head_dim)
        self.rope_head_dim = rope_dim(self.head_dim, shape.rope_head_dim)
        self.v_head_dim = shape.v_head_dim or self.head_dim
        self.kv_rank = shape.kv_rank or 4 * self.head_dim
        self.scale = (self.head_dim + self.rope_head_dim) ** -0.5 if scale is None else scale
        of_norms = {} if norm_eps is None else {"eps": norm_eps}
        self.q_down = nn.Linear(dim, q_rank, bias) if q_rank else None
        self.q_norm = norm(q_rank, **of_norms) if q_rank else None
        self.q_head_dim = self.head_dim + self.rope_head_dim
        self.q = nn.Linear(q_rank or dim, heads * self.q_head_dim, False)
        self.parameter_info = {"q": hidden("heads*q_head_dim", "q_rank" if q_rank else "dim")}
        self.kv_down = nn.Linear(dim, self.kv_rank, bias)
        self.kv_norm = norm(self.kv_rank, **of_norms)
        self.k_rope = nn.Linear(dim, self.rope_head_dim, bias) if self.rope_head_dim else None
        self.k = nn.Linear(self.kv_rank, heads * self.head_dim, False)
        self.v = nn.Linear(self.kv_rank, heads * self.v_head_dim, False)
        self.o = nn.Linear(heads * self.v_head_dim, dim, bias)
        self.kernel = kernel
        self.dropout = dropout
        rope = ("k_rope",) if self.rope_head_dim else ()
        self.fusible = ("q_down" if q_rank else "q", "kv_down", *rope)

    @classmethod
    def traits(cls, options, dim):
        traits = super().traits({**options, "kv_heads": 1}, dim)
        rotated = rope_dim(traits.head_dim, options.get("rope_head_dim"))
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
        yield from in_range(options, dropout=(0, 1))
        yield from above(options, "null is (head_dim + rope_head_dim)^-0.5.", scale=0)
        yield from above(options, "null is that of the block's norms.", norm_eps=0)

    @classmethod
    def cannot(cls, options, context):
        position, norm = context.position, context.names["norm"]
        if options.norm_eps is not None and "eps" not in context.norm.options:
            rule = f"is an option of the norms of latents, and norm '{norm}' has none"
            yield Fault("norm_eps", rule, options.norm_eps, "Leave it out, or choose norm=rms.")
        enters = "rotate" in position.enters or ("scores" in position.enters and position.channels)
        if context.attn.head_dim or not enters:
            return
        yield Fault(
            "",
            f"position '{context.names['position']}' acts on the decoupled query and key, which"
            " have no channels with rope_head_dim=0",
            fix="Leave rope_head_dim out, or choose position=none, learned or alibi.",
        )

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        if source is None:
            first, *maps = self.project_input(x, context)
            kv = self._latent_kv(maps, context.query, context, cache)
        else:
            first, kv = self._first(x), self._source_kv(source, context, cache)
        q, rope_q = self._project_q(first)
        rope_q = context.position.rotate(rope_q, context.query)
        attend = self._attend_absorbed if self._use_absorbed(q, kv) else self._attend
        out = attend(q, rope_q, kv, context)
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, e) -> (b, t, dim)

    def queries_of(self, x: Tensor) -> Tensor:
        return self._project_q(self._first(x))[1]

    def keys_of(self, x: Tensor) -> Tensor:
        return self.k_rope(x)[:, None]

    def _project_q(self, first: Tensor) -> tuple[Tensor, ...]:
        """Queries (b, h, t, head_dim) and decoupled ones, (b, h, t, rope_head_dim)."""
        q = self.q(self.q_norm(first)) if self.q_down is not None else first
        sizes = [self.head_dim, self.rope_head_dim]
        q = q.unflatten(-1, (-1, sum(sizes))).transpose(1, 2)  # -> (b, h, t, d + r)
        return q.split(sizes, -1)

    def _first(self, x: Tensor) -> Tensor:
        """The input of `_project_q`: the latent of queries, or queries (b, t, channels)."""
        return self.q(x) if self.q_down is None else self.q_down(x)

    def _latent_kv(
        self,
        maps: Sequence[Tensor],
        tokens: Tokens,
        context: AttentionContext,
        cache: KeyValueCache | None,
    ) -> LatentKV:
        """Normalised latents and rotated keys from the maps of `tokens`, after the cached ones. All
        heads share them.
        """
        latent = self.kv_norm(maps[0])[:, None]
        rope_key = maps[1][:, None] if self.rope_head_dim else latent[..., :0]
        rope_key = context.position.rotate_key(rope_key, tokens)
        if cache is None:
            return LatentKV(latent, rope_key)
        return self._from_cache(cache.append(torch.cat([latent, rope_key], -1)))

    def _source_kv(
        self, source: Tensor, context: AttentionContext, cache: KeyValueCache | None
    ) -> LatentKV:
        """Latents and keys of a source, which are computed once per generation."""
        if cache is not None and cache.length:
            return self._from_cache(cache.kept())
        maps = [getattr(self, name)(source) for name in self.fusible[1:]]
        return self._latent_kv(maps, context.key, context, cache)

    def _from_cache(self, tensors: Sequence[Tensor]) -> LatentKV:
        """Latents and keys of the one tensor that is cached."""
        (joined,) = tensors
        latent, rope_key = joined.split([self.kv_rank, self.rope_head_dim], -1)
        return LatentKV(latent, rope_key, joined)

    def _attend(self, q: Tensor, rope_q: Tensor, kv: LatentKV, context: AttentionContext) -> Tensor:
        """Computes keys and values from the latents, and attends: (b, h, t, v_head_dim)."""
        k, v = (
            m(kv.latent[:, 0])
            .unflatten(-1, (-1, size))
            .transpose(1, 2)  # (b, s, h * d) -> (b, h, s, d)
            for m, size in ((self.k, self.head_dim), (self.v, self.v_head_dim))
        )
        if self.rope_head_dim and not context.scored:
            k = torch.cat([k, kv.rope_key.expand(-1, k.shape[1], -1, -1)], -1)
            q = torch.cat([q, rope_q], -1)
        return self._call_kernel(q, k, v, rope_q, kv, context)

    def _attend_absorbed(
        self, q: Tensor, rope_q: Tensor, kv: LatentKV, context: AttentionContext
    ) -> Tensor:
        """As `_attend`, in the absorbed form: the latents are the keys and values that all heads
        share, queries are multiplied by the key matrix, and outputs (b, h, t, v_head_dim) by the
        value matrix.
        """
        # (h, d, kv_rank)
        k, v = (m.weight.unflatten(0, (q.shape[1], -1)) for m in (self.k, self.v))
        q = torch.einsum("bhtd,hdr->bhtr", q, k.to(q.dtype))
        keys = kv.latent
        if not context.scored:
            q, keys = torch.cat([q, rope_q], -1), kv.joined
        out = self._call_kernel(q, keys, kv.latent, rope_q, kv, context)
        return torch.einsum("bhtr,hdr->bhtd", out, v.to(out.dtype))

    def _call_kernel(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rope_q: Tensor,
        kv: LatentKV,
        context: AttentionContext,
    ) -> Tensor:
        """Calls the kernel with queries, keys and values, or with a position's scores of the
        decoupled ones.
        """
        scale, scores = self.scale * context.gain, None
        if context.scored:
            content = scaled_products(q, k, scale)  # k has one head, or as many as q
            scores = content + context.position.scores(self, rope_q, kv.rope_key, context)
        return self.kernel(q, k, v, context, scale, self.dropout if self.training else 0.0, scores)

    def _use_absorbed(self, q: Tensor, kv: LatentKV) -> bool:
        """Whether the absorbed form is possible, only in generation with plain maps (not replaced,
        sharded or quantized), and takes fewer operations.
        """
        if kv.joined is None or not (is_plain(self.k) and is_plain(self.v)):
            return False
        queries, keys, channels = q.shape[2], kv.latent.shape[2], self.head_dim + self.v_head_dim
        plain = keys * self.kv_rank * channels + queries * keys * channels
        absorbed = queries * self.kv_rank * channels + queries * keys * 2 * self.kv_rank
        return absorbed < plain

    def cache(self, rows, length):
        return KeyValueCache.of(self, (rows, 1, length, self.kv_rank + self.rope_head_dim))


def rope_dim(head_dim: int, option: int | None) -> int:
    """Channels of the decoupled query and key: the option, or if None half of head_dim, rounded up
    to an even number.
    """
    return -(-head_dim // 4) * 2 if option is None else option
