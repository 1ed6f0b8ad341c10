"""Scaled dot-product attention in several heads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.attention.base import ATTENTIONS, Attention, check_heads, device_and_dtype
from xformer_kit.attention.gate import Gate, NoGate
from xformer_kit.attention.memory import Memory
from xformer_kit.attention.qk_norm import QK_NORMS, NoQKNorm, QKNorm
from xformer_kit.attention.score import Score, Softmax
from xformer_kit.attention.values import VALUES, Plain, Values
from xformer_kit.kernel import Kernel
from xformer_kit.model.cache import KeyValueCache
from xformer_kit.model.fused_projections import FusedProjections
from xformer_kit.registry import Fault, OptionGroup, above, at_least, shown, within


class Seen(NamedTuple):
    """What meets in an attention, each (b, heads or kv_heads, tokens, channels)."""

    q: Tensor
    k: Tensor
    v: Tensor
    own: Tensor  # values of the tokens that look
    asks: Tensor  # queries that no position has turned


Scale = float | Literal["by_layer"] | None


@dataclass(frozen=True)
class Projections(OptionGroup):
    """Biases, bounds and norms of queries, keys and values as projected."""

    # whether all projections have biases, or which
    bias: bool | tuple[Literal["q", "k", "v", "o"], ...] = False
    qk_norm: Callable[..., QKNorm] = NoQKNorm  # norms of queries and keys; true is head
    # largest magnitude in queries, keys and values as projected; null is no limit
    clip: float | None = None

    def biased(self, name: str) -> bool:
        """Whether the projection q, k, v or o has a bias."""
        return self.bias is True or (self.bias is not False and name in self.bias)


@dataclass(frozen=True)
class AttentionWeights(OptionGroup):
    """How queries and keys, also learned ones, become the weights of values."""

    # factor on scores; null is head_dim^-0.5, by_layer that / the number of the layer
    scale: Scale = None
    score: Callable[..., Score] = Softmax  # how scores become weights
    memory: int = 0  # learned keys and values of each head, which every query sees
    dropout: float = 0.0  # probability, on the attention weights


AS_PROJECTED = Projections()
SOFTMAX = AttentionWeights()


@ATTENTIONS.register(
    "multi_head",
    also_called=("mha", "gqa", "mqa", "multihead", "grouped_query", "multi_query", "single_head"),
)
class MultiHead(Attention):
    """softmax(mask(q k^T * scale)) v in each head, heads concatenated and projected (Vaswani et
    al., 2017, arXiv:1706.03762, section 3.2.2).

    Groups of heads / kv_heads query heads share keys and values: kv_heads == heads is multi-head, 1
    is multi-query (Shazeer, 2019, arXiv:1911.02150), between them lies grouped-query attention
    (Ainslie et al., 2023, arXiv:2305.13245); heads == 1 is single-head attention.

    qk_norm: norms of queries and keys (xformer_kit/attention/qk_norm.py).
    gate: what the output is multiplied by (xformer_kit/attention/gate.py).
    memory: learned keys and values beside those of the text (xformer_kit/attention/memory.py).
    values: what is mixed into them, what is summed of them, and what is left of the sum
    (xformer_kit/attention/values.py).
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        depth: int = 0,
        *,
        heads: int = 8,  # query heads
        kv_heads: int | None = None,  # key and value heads; null is heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        projections: Projections = AS_PROJECTED,
        gate: Callable[..., Gate] = NoGate,  # by what the output is multiplied
        # what is summed of values, and what is left of the sum
        values: Callable[..., Values] = Plain,
        weights: AttentionWeights = SOFTMAX,
    ):
        super().__init__()
        self.head_dim = head_dim or dim // heads
        self.kv_heads = kv_heads or heads
        self.v_head_dim = v_head_dim or self.head_dim
        self.kernel = kernel
        self.q = nn.Linear(dim, heads * self.head_dim, projections.biased("q"))
        self.k = nn.Linear(dim, self.kv_heads * self.head_dim, projections.biased("k"))
        self.v = nn.Linear(dim, self.kv_heads * self.v_head_dim, projections.biased("v"))
        self.o = nn.Linear(heads * self.v_head_dim, dim, projections.biased("o"))
        self.clip = projections.clip
        norms = projections.qk_norm(norm=norm)
        self._add_norms(norms, heads)
        self._add_scale(weights.scale, norms.scale(self.head_dim), depth)
        self.dropout = weights.dropout
        shape = {"kv_heads": self.kv_heads, "v_head_dim": self.v_head_dim}
        self._add_optional(
            gate(dim=dim, heads=heads, v_head_dim=self.v_head_dim),
            weights.memory,
            values(dim=dim, depth=depth, norm=norm, **shape),
            weights.score(heads=heads),
        )

    def _add_norms(self, norms: QKNorm, heads: int) -> None:
        self.q_norm = norms.of_query(heads, self.head_dim)
        self.k_norm = norms.of_key(self.kv_heads, self.head_dim)
        self.norm_first = self.k_norm is not None and not norms.after
        self.norm_last = norms.after
        names = [name for name, _ in (self.k_norm or self.k).named_parameters()]
        # They add the same to every score of a row, and softmax ignores that.
        biases = (f"k_norm.{name}" for name in names if name.endswith("bias"))
        self.no_gradient = ("k.bias", *biases)

    def _add_scale(self, scale: Scale, usual: float, depth: int) -> None:
        self.factor = scale if isinstance(scale, (int, float)) else usual
        # a tensor, for compilation would give each number a graph of its own
        share = torch.tensor(1 / (depth + 1)) if scale == "by_layer" else None
        self.register_buffer("share", share, persistent=False)

    def _add_optional(self, gate: Gate, memory: int, values: Values, score: Score) -> None:
        """Modules that most attentions do not have; None for those that change nothing."""
        shape = self.kv_heads, memory, self.head_dim, self.v_head_dim
        self.gate = None if type(gate) is NoGate else gate
        self.memory = Memory(*shape) if memory else None
        self.values = None if type(values) is Plain and values.bare else values
        self.score = None if type(score) is Softmax and score.plain else score

    packed: FusedProjections | None = None
    packs = ("q", "k", "v")
    share: Tensor | None  # of the scale in this layer, with scale=by_layer: 1 / its number

    @classmethod
    def breaks(cls, options):
        return {"nothing": "a learned key is seen by every query"} if options.memory else {}

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", v_head_dim=1)
        yield from at_least(options, "key", memory=0)
        yield from within(options, dropout=(0, 1))
        # 0 and below: fused kernels multiply what a mask hides, -inf, by it.
        if options.scale != "by_layer":
            yield from above(options, "null is head_dim^-0.5.", scale=0)
        yield from above(options, "null is no limit.", clip=0)
        if isinstance(options.bias, (list, tuple)) and len(set(options.bias)) < len(options.bias):
            yield Fault(
                "bias",
                "names a projection twice",
                got=shown(options.bias),
                fix="Name each once.",
            )

    @classmethod
    def norms_with(cls, options):
        """Whether it has norms of the kind of its block."""
        values = VALUES.complete(options.get("values") or "plain")
        norms = QK_NORMS.complete(options.get("qk_norm") or "none")
        return norms["name"] != "none" or values["norm_over"] != "none"

    @classmethod
    def traits(cls, options, dim):
        traits = replace(super().traits(options, dim), values=True)
        values = VALUES.complete(options.get("values") or "plain")
        if values["residual"] == "none":
            return traits
        common = traits.kv_heads, options.get("v_head_dim") or traits.head_dim
        return replace(traits, across={**traits.across, "values": (common, 1)})

    @property
    def scale(self) -> float | Tensor:
        """Factor on scores."""
        return self.factor if self.share is None else self.factor * self.share

    @scale.setter
    def scale(self, scale: float) -> None:
        self.factor = scale
        self.share = None

    def split(self, x: Tensor) -> Tensor:
        # (b, t, h * d) -> (b, h, t, d); `unflatten` says it better, and costs 3 us more for each
        # generated token
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def queries_of(self, x: Tensor) -> Tensor:
        return self.split(self.q(x))

    def keys_of(self, x: Tensor) -> Tensor:
        return self.split(self.k(x))

    def split_values(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.v_head_dim).transpose(1, 2)

    def _valued(self, v: Tensor, given: Tensor, view) -> Tensor:
        """Values as a cache keeps them, from what is projected of `given`: (b, t, kv * e) -> (b,
        kv, t, e).
        """
        v = self.split_values(v)
        for change in () if view.cross else view.values:
            v = change(v, given)
        return v if self.values is None else self.values.made(v, given, view)

    def forward(self, x, source, view, cache=None):
        seen = (
            self._looked_at(x, view, cache)
            if source is None
            else self._across(x, source, view, cache)
        )
        q, k, v = seen.q, seen.k, seen.v
        scores = view.position.scores(self, q, k, view) if view.scored else None
        if self.memory is not None:
            q, k, v, scores = self._remembered(seen, scores)
        q, k, scores = self.compared(q, k, scores)
        dropout = self.dropout if self.training else 0.0
        weigh = () if self.score is None else (self.score.of(view, cache),)
        if self.share is not None:  # kernels take the rest of the scale, a Python number
            q = q * self.share

        def attend(v: Tensor) -> Tensor:
            return self.kernel(q, k, v, view, self.factor, dropout, scores, *weigh)

        out = attend(v) if self.values is None else self.values(attend, v, seen.own)
        out = out.transpose(1, 2)  # (b, h, t, e) -> (b, t, h, e)
        if self.gate is None:
            return self.o(out.flatten(2))  # (b, t, h, e) -> (b, t, h * e) -> (b, t, dim)
        out = self.gate.before(x, out).flatten(2)
        return self.gate.behind(x, out, self.o(out))

    def compared(
        self, q: Tensor, k: Tensor, scores: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries and keys of which a kernel takes products, or the scores in their place."""
        return q, k, scores

    def _remembered(self, seen: Seen, scores: Tensor | None):
        """Queries, keys, values and scores, with learned keys and values in front; keys are normed
        as those of the text.
        """
        keys = self.memory.k if self.k_norm is None else self.k_norm(self.memory.k[None])[0]
        if scores is not None:
            scores = torch.cat([self.memory.scores(seen.asks, keys) * self.scale, scores], -1)
        return (
            *self.memory.beside(seen.q, seen.k, seen.asks, keys),
            self.memory.values(seen.v),
            scores,
        )

    def _looked_at(self, x, view, cache) -> Seen:
        """Queries, keys and values of x itself, behind those of the past."""
        position = view.position
        q, k, v = (self.q(x), self.k(x), self.v(x)) if self.packed is None else self.packed(x)
        if self.clip is not None:
            q, k, v = (part.clamp(-self.clip, self.clip) for part in (q, k, v))
        q, k, v = self.split(q), self.split(k), self._valued(v, x, view)
        q, asks = self._asked(q, view)
        k = self.k_norm(k) if self.norm_first else k
        k = position.rotate_key(k, view.query)
        k = self.k_norm(k) if self.norm_last else k
        own = v
        if cache is not None:
            k, v = cache.append(k, v)
        return Seen(q, k, v, own, asks)

    def _across(self, x, source, view, cache) -> Seen:
        """Queries of x, keys and values of the source, which a cache computes once."""
        q, asks = self._asked(self.split(self._clipped(self.q(x))), view)
        if cache is not None and cache.length:
            k, v = cache.kept()
            return Seen(q, k, v, v, asks)
        k = self.split(self._clipped(self.k(source)))
        k = view.position.rotate_key(self.k_norm(k) if self.norm_first else k, view.key)
        k = self.k_norm(k) if self.norm_last else k
        v = self._valued(self._clipped(self.v(source)), source, view)
        k, v = (k, v) if cache is None else cache.append(k, v)
        return Seen(q, k, v, v, asks)

    def _asked(self, q: Tensor, view) -> tuple[Tensor, Tensor]:
        """Queries normed and rotated, in the order of the options; and the same unrotated, for a
        memory, which stands nowhere.
        """
        q = self.q_norm(q) if self.norm_first else q
        asks, q = q, view.position.rotate(q, view.query)
        if not self.norm_last:
            return q, asks
        normed = self.q_norm(q)
        return normed, normed if asks is q or self.memory is None else self.q_norm(asks)

    def _clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def cache(self, rows, length, view=None):
        device, dtype = device_and_dtype(self)
        shapes = (
            (rows, self.kv_heads, length, channels) for channels in (self.head_dim, self.v_head_dim)
        )
        made = KeyValueCache if self.score is None else self.score.cache
        return made(*shapes, dtype=dtype, device=device)
