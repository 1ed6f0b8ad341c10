"""Attention with learned keys and values next to those of the tokens."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import (
    AS_PROJECTED,
    ATTENTIONS,
    EIGHT_HEADS,
    SOFTMAX,
    Gate,
    HeadShape,
    MultiHead,
    NoGate,
    Projections,
    WeightOptions,
    channels,
)
from xformer_kit.kernel import Kernel, Reference, scaled_products
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import embedding

BETWEEN_TOKENS = ("inverted", "selective")  # scores that are undefined for keys without a token


class LearnedKeys(nn.Module):
    """Keys (kv, count, d) and values (kv, count, e)."""

    # Paper: M_k and M_v are drawn as wide as 1, and scaled.   Here: both are drawn as embeddings
    # are.

    parameter_info = {
        "k": embedding("kv_heads", "keys", "head_dim"),
        "v": embedding("kv_heads", "keys", "v_head_dim"),
    }

    def __init__(self, kv_heads: int, count: int, head_dim: int, v_head_dim: int):
        super().__init__()
        self.k = nn.Parameter(torch.empty(kv_heads, count, head_dim))
        self.v = nn.Parameter(torch.empty(kv_heads, count, v_head_dim))


@ATTENTIONS.register(
    "persistent_memory", also_called=("mem_kv", "all_attention"), similar=("memory",)
)
class PersistentMemory(MultiHead):
    """multi_head with learned keys M_k before the keys, and learned values M_v before the values
    (persistent memory: Sukhbaatar et al., 2019, arXiv:1907.01470, section 4.1).

    Every query sees the learned keys, whatever the mask hides. They have no position: a rotation of
    queries does not change products with them.
    """

    variants = [{"count": 3, "qk_norm": "key", "v_head_dim": 7, "bias": True}]

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        depth: int = 0,
        *,
        shape: HeadShape = EIGHT_HEADS,
        count: int = 16,  # learned keys and values of each head
        projections: Projections = AS_PROJECTED,
        gate: Callable[..., Gate] = NoGate,  # factor on the output
        weights: WeightOptions = SOFTMAX,
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            depth,
            shape=shape,
            projections=projections,
            gate=gate,
            weights=weights,
        )
        self.memory = LearnedKeys(self.kv_heads, count, self.head_dim, self.v_head_dim)
        self.wide = channels(self.head_dim, count)

    # Fused kernels compute no softmax with keys that are no tokens; see `attend`.
    computes = "mixture"
    breaks = {"nothing": "a learned key is seen by every query"}

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, "key", count=1)

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if (score := context.attn.score) in BETWEEN_TOKENS:
            yield Fault(
                "score",
                f"'{score}' compares tokens with each other, and a learned key has none",
                fix="Choose attn.score=softmax.",
            )

    @classmethod
    def traits(cls, options, dim):
        traits = super().traits(options, dim)
        count = options.get("count")
        cross_layer = {name: (shape, count) for name, shape in traits.cross_layer.items()}
        return replace(traits, cross_layer=cross_layer)

    def query(self, q, context):
        """Queries; if they are rotated, with scaled products of the unrotated ones and the
        learned keys as more channels.
        """
        if self.q_norm is not None and not self.norm_after_rotation:
            q = self.normed(q, self.q_norm)
        rotated = context.position.rotate(q, context.query)
        plain = q
        if self.norm_after_rotation:
            plain = self.normed(q, self.q_norm)
            rotated = rotated if rotated is q else self.normed(rotated, self.q_norm)
        if rotated is q:
            return plain
        products = scaled_products(plain, self.keys(q.dtype)[None], self.factor)
        return torch.cat([rotated, F.pad(products, (0, self.wide - products.shape[-1]))], -1)

    def keys(self, dtype: torch.dtype) -> Tensor:
        """Learned keys (kv, n, d), normed as those of tokens."""
        k = self.memory.k
        return (k if self.k_norm is None else self.k_norm(k[None])[0]).to(dtype)

    def attend(self, q, k, v, context, scores, *score_fn):
        keys = self.keys(k.dtype)
        count = keys.shape[1]
        if scores is not None:
            products = scaled_products(q, keys[None], self.factor)
            scores = torch.cat([products, scores], -1)
        elif q.shape[-1] > k.shape[-1]:  # learned key j reads channel d + j of a query
            eye = torch.eye(count, self.wide, dtype=k.dtype, device=k.device) / self.factor
            keys = torch.cat([torch.zeros_like(keys), eye.expand(len(keys), -1, -1)], -1)
            k = F.pad(k, (0, self.wide))
        k, v = before(keys, k), before(self.memory.v.to(v.dtype), v)
        seen, bias = (
            None
            if x is None
            else F.pad(x.expand(*x.shape[:-1], context.key.length), (count, 0), value=of_learned)
            for x, of_learned in zip(context.prepared, (True, 0), strict=True)
        )
        if scores is None and not score_fn and type(self.kernel) is Reference:
            return self.fused(q, k, v, seen, bias)
        context = context._replace(prepared=(seen, bias))
        return super().attend(q, k, v, context, scores, *score_fn)

    def fused(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Computes the output with torch's function, which is faster."""
        if seen is not None and bias is not None:
            bias = bias.masked_fill(~seen, -torch.inf)
        mask = seen if bias is None else bias
        grouped, dropout = k.shape[1] != q.shape[1], self.dropout if self.training else 0.0
        scale = self.factor
        return F.scaled_dot_product_attention(
            q, k, v, mask, dropout, scale=scale, enable_gqa=grouped
        )


def before(learned: Tensor, x: Tensor) -> Tensor:
    """(kv, n, d) and (b, kv, s, d) -> (b, kv, n + s, d)."""
    return torch.cat([learned.expand(len(x), -1, -1, -1), x], 2)
