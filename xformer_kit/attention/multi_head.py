"""Multi-head attention.

Shapes: b batch, t queries, s keys, h query heads, kv key and value heads, d head_dim, e v_head_dim.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xformer_kit.attention.base import ATTENTIONS, Attention
from xformer_kit.attention.gate import Gate, NoGate
from xformer_kit.attention.heads import check_heads, head_channels, join_heads, split_heads
from xformer_kit.attention.qk_norm import NoQKNorm, Norm, QKNorm, make_norm
from xformer_kit.attention.score import Score, SoftmaxScore
from xformer_kit.kernel import Kernel
from xformer_kit.registry import (
    REQUIRED,
    Fault,
    OptionGroup,
    Unused,
    above,
    at_least,
    format_value,
    in_range,
)
from xformer_kit.tensors import SubmoduleInfo, hidden, vector
from xformer_kit.tensors.cache import KeyValueCache
from xformer_kit.tensors.tokens import Tokens

Scale = float | Literal["by_layer"] | None
KeySource = Literal["own", "earlier"]


@dataclass(frozen=True)
class HeadShape(OptionGroup):
    """Numbers of heads and of their channels."""

    heads: int = 8  # query heads
    kv_heads: int | None = None  # key and value heads, such as 2; null is heads
    head_dim: int | None = None  # channels of a head; null is dim / heads
    v_head_dim: int | None = None  # channels of a head's values; null is head_dim


@dataclass(frozen=True)
class Projections(OptionGroup):
    """Biases of the projections; bounds and norms of queries, keys and values."""

    # whether all projections have biases, or which
    bias: bool | tuple[Literal["q", "k", "v", "o"], ...] = False
    qk_norm: Callable[..., QKNorm] = NoQKNorm  # norms of queries and keys; true is head
    # norms of values over the channels of a head or of the projection; each_head: with weights for
    # each head
    v_norm: Literal["none", "head", "each_head", "projection"] = "none"
    # largest magnitude in queries, keys and values as projected; null is no limit
    clip: float | None = None
    clip_normed: bool = False  # whether queries and keys are clipped after their norms instead

    def biased(self, name: str) -> bool:
        """Whether the projection q, k, v or o has a bias."""
        return self.bias is True or (self.bias is not False and name in self.bias)

    def norm_of_values(self, norm: Norm, heads: int, channels: int) -> nn.Module | None:
        """Returns the norm of values, `heads` of so many channels; None if they have none."""
        return None if self.v_norm == "none" else make_norm(self.v_norm, norm, heads, channels)


@dataclass(frozen=True)
class WeightOptions(OptionGroup):
    """How attention weights are computed from queries and keys."""

    # factor on scores; null is head_dim^-0.5, or the factor of qk_norm; by_layer divides that by
    # the layer's number, 1, 2, ...
    scale: Scale = None
    score: Callable[..., Score] = SoftmaxScore  # how scores become weights
    dropout: float = 0.0  # probability, on the attention weights


EIGHT_HEADS = HeadShape()
AS_PROJECTED = Projections()
SOFTMAX = WeightOptions()


@ATTENTIONS.register(
    "multi_head",
    also_called={
        "mha": {},
        "gqa": {"kv_heads": REQUIRED},
        "mqa": {"kv_heads": 1},
        "multihead": {},
        "grouped_query": {"kv_heads": REQUIRED},
        "multi_query": {"kv_heads": 1},
        "single_head": {"heads": 1},
    },
    similar=("self", "self_attention", "standard", "scaled_dot_product"),
)
class MultiHead(Attention):
    """softmax(mask(q k^T * scale)) v in each head, heads concatenated and projected (Vaswani et
    al., 2017, arXiv:1706.03762, section 3.2.2).

    Groups of heads / kv_heads query heads share keys and values: kv_heads = heads is multi-head, 1
    is multi-query (Shazeer, 2019, arXiv:1911.02150), and values between are grouped-query attention
    (Ainslie et al., 2023, arXiv:2305.13245). heads = 1 is single-head attention.

    projections.qk_norm: norms of queries and keys (xformer_kit/attention/qk_norm.py).
    gate: factor on the output (xformer_kit/attention/gate.py).

    norm: norm(n) builds a norm of the block's kind over n channels. depth: index of the layer, from
    0. exchange: name under which keys and values are passed to later layers, or taken from an
    earlier one; None if they are not.
    """

    # Without rotation, biases of keys add one number to all scores of a row, which does not change
    # its softmax: their gradient may be zero.
    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("kv_heads*head_dim", "dim"),
        "k.bias": vector("kv_heads*head_dim", bias=True, zero_gradient=True),
        "v": hidden("kv_heads*v_head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*v_head_dim", writes=True),
        "q_norm": SubmoduleInfo({"normalised": "head_dim"}, shared_by_heads=True),
        "k_norm": SubmoduleInfo(
            {"normalised": "head_dim", "heads": "kv_heads"}, True, zero_gradient_of_biases=True
        ),
        "v_norm": SubmoduleInfo(
            {"normalised": "v_head_dim", "heads": "kv_heads"}, shared_by_heads=True
        ),
    }

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        depth: int = 0,
        exchange: str | None = None,
        *,
        shape: HeadShape = EIGHT_HEADS,
        projections: Projections = AS_PROJECTED,
        gate: Callable[..., Gate] = NoGate,  # factor on the output
        weights: WeightOptions = SOFTMAX,
        # whose keys and values it attends to: its own, or those of the last attention before it
        # that has its own, with the same mask and position
        keys: KeySource = "own",
    ):
        super().__init__()
        heads = shape.heads
        self.head_dim = head_channels(dim, heads, shape.head_dim)
        self.kv_heads = shape.kv_heads or heads
        self.v_head_dim = shape.v_head_dim or self.head_dim
        self.kernel = kernel
        self.q = nn.Linear(dim, heads * self.head_dim, projections.biased("q"))
        self.exchange = exchange
        self.own_keys = keys == "own"
        self.k = self.v = self.k_norm = self.v_norm = None
        if self.own_keys:
            self.k = nn.Linear(dim, self.kv_heads * self.head_dim, projections.biased("k"))
            self.v = nn.Linear(dim, self.kv_heads * self.v_head_dim, projections.biased("v"))
        else:
            self.fusible = ("q",)
        self.o = nn.Linear(heads * self.v_head_dim, dim, projections.biased("o"))
        self.clip = projections.clip
        self.clip_normed = projections.clip_normed
        norms = projections.qk_norm(norm=norm)
        self.q_norm = norms.of_query(heads, self.head_dim)
        self.norm_after_rotation = norms.after
        if self.own_keys:
            self.k_norm = norms.of_key(self.kv_heads, self.head_dim)
            self.v_norm = projections.norm_of_values(norm, self.kv_heads, self.v_head_dim)
        scale = weights.scale
        self.factor = scale if isinstance(scale, (int, float)) else norms.scale(self.head_dim)
        # A tensor, because torch.compile would compile a graph for each value of a number.
        layer_factor = torch.tensor(1 / (depth + 1)) if scale == "by_layer" else None
        self.register_buffer("layer_factor", layer_factor, persistent=False)
        self.dropout = weights.dropout
        gate_module = gate(dim=dim, heads=heads, v_head_dim=self.v_head_dim)
        self.gate = None if type(gate_module) is NoGate else gate_module
        score = weights.score(heads=heads)
        self.score = None if type(score) is SoftmaxScore and score.plain else score

    fusible: tuple[str, ...] = ("q", "k", "v")
    layer_factor: Tensor | None  # factor on the scale, with scale=by_layer: 1 / the layer's number

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", v_head_dim=1)
        yield from in_range(options, dropout=(0, 1))
        # Fused kernels multiply the scores of masked keys, -inf, by the scale: it must be above 0.
        if options.scale != "by_layer":
            yield from above(options, "null is head_dim^-0.5.", scale=0)
        yield from above(options, "null is no limit.", clip=0)

    @classmethod
    def builds_block_norm(cls, options):
        """Whether it builds norms of the kind of its block, for queries, keys or values."""
        qk_norm = options.get("qk_norm")
        normed = qk_norm is not None and qk_norm.component is not NoQKNorm
        return normed or (options.get("v_norm") or "none") != "none"

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if options.clip_normed and (options.clip is None or options.qk_norm.component is NoQKNorm):
            rule = "clips queries and keys after their norms, and there are none, or attn.clip=null"
            yield Unused("clip_normed", rule, got="true", fix="Leave it out.")
        if options.keys == "earlier":
            yield from _unused_with_earlier_keys(options)
        if options.v_norm not in (None, "none") and not context.norm.normalises:
            yield Fault(
                "v_norm",
                f"takes the norm of {context.path}, and '{context.names['norm']}' does nothing",
                got=format_value(options.v_norm),
                fix="Choose norm=rms or norm=layer there, or attn.v_norm=none.",
            )

    @classmethod
    def traits(cls, options, dim):
        own = options.get("keys") != "earlier"
        return replace(super().traits(options, dim), values=own)

    @property
    def scale(self) -> float | Tensor:
        """Factor on scores."""
        return self.factor if self.layer_factor is None else self.factor * self.layer_factor

    @scale.setter
    def scale(self, scale: float) -> None:
        self.factor = scale
        self.layer_factor = None

    def split(self, x: Tensor) -> Tensor:
        """(b, t, h * d) -> (b, h, t, d)."""
        return split_heads(x, self.head_dim)

    def queries_of(self, x: Tensor) -> Tensor:
        """Projected queries (b, h, t, d), before clip, norms and rotation."""
        return self.split(self.q(x))

    def keys_of(self, x: Tensor) -> Tensor:
        """Projected keys (b, kv, t, d), before clip, norms and rotation."""
        return self.split(self.k(x))

    def values_of(self, v: Tensor, x: Tensor, context) -> Tensor:
        """Values to cache, from the projection v of x: (b, t, kv * e) -> (b, kv, t, e)."""
        v = split_heads(v, self.v_head_dim)
        if context.values is not None and not context.cross:
            v = context.values(v, x)
        return v if self.v_norm is None else self.v_norm(v)

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        q, k, v = self.project(x, source, context, cache)
        scores = context.position.scores(self, q, k, context) if context.scored else None
        q, k, scores = self.kernel_inputs(q, k, scores)
        if self.layer_factor is not None:  # kernels apply self.factor, a Python number
            q = q * self.layer_factor
        score_arguments = () if self.score is None else (self.score.of(context, cache),)
        out = self.attend(q, k, v, context, scores, *score_arguments)
        if self.gate is None:
            return self.o(join_heads(out))  # (b, h, t, e) -> (b, t, h * e) -> (b, t, dim)
        out = self.gate.before(x, out.transpose(1, 2)).flatten(2)
        return self.gate.after(x, out, self.o(out))

    def project(self, x, source, context, cache) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries (b, h, t, d), keys (b, kv, s, d) and values (b, kv, s, e), including the
        cached ones: all clipped and normalised as configured, queries and keys also rotated. With a
        cache, keys and values of a source are computed only at the first call. Keys and values of
        an earlier layer are in `context.cross_layer_state`.
        """
        if self.own_keys and self.exchange is None:
            return self._own(x, source, context, cache)
        names = f"keys {self.exchange}", f"values {self.exchange}"
        if not self.own_keys:
            (q,) = self.project_input(x, context)
            q = self.query(self.split(self._projected(q)), context)
            return q, *(context.cross_layer_state[name] for name in names)
        q, k, v = self._own(x, source, context, cache)
        context.cross_layer_state.update(zip(names, (k, v), strict=True))
        return q, k, v

    def _own(self, x, source, context, cache) -> tuple[Tensor, Tensor, Tensor]:
        """`project` with keys and values of its own."""
        q, *kv = self.project_qkv(x, source, context, cache)
        if self.clip is not None:
            q, kv = self._projected(q), [self._projected(kv[0]), self._clipped(kv[1])] if kv else kv
        if not kv:
            return self.query(self.split(q), context), *cache.kept()
        kv_input, kv_tokens = (x, context.query) if source is None else (source, context.key)
        q, k = self.query_and_key(self.split(q), self.split(kv[0]), context, kv_tokens)
        v = self.values_of(kv[1], kv_input, context)
        return (q, k, v) if cache is None else (q, *cache.append(k, v))

    def query_and_key(
        self, q: Tensor, k: Tensor, context, key_tokens: Tokens
    ) -> tuple[Tensor, Tensor]:
        """Normalises and rotates queries (b, h, t, d) and keys (b, kv, s, d). For one token, where
        operations take longer than their copies, both are rotated at once if that is possible.
        """
        position = context.position
        rotate_both = getattr(position, "rotate_both", None)
        plain = type(self).query is MultiHead.query and not self.norm_after_rotation
        if q.shape[2] == 1 and plain and rotate_both is not None:
            q = q if self.q_norm is None else self.normed(q, self.q_norm)
            k = k if self.k_norm is None else self.normed(k, self.k_norm)
            return rotate_both(q, k, context.query, key_tokens)
        k = self.rotated(k, self.k_norm, position.rotate_key, key_tokens)
        return self.query(q, context), k

    def query(self, q: Tensor, context) -> Tensor:
        """Normalises and rotates queries (b, h, t, d); rotates first with qk_norm.after."""
        return self.rotated(q, self.q_norm, context.position.rotate, context.query)

    def rotated(self, x: Tensor, norm: Any, rotate: Callable, tokens: Tokens) -> Tensor:
        """Applies a norm, if there is one, and a rotation to queries or keys x (b, h, t, d), in the
        order of qk_norm.after.
        """
        if norm is None:
            return rotate(x, tokens)
        if self.norm_after_rotation:
            return self.normed(rotate(x, tokens), norm)
        return rotate(self.normed(x, norm), tokens)

    def normed(self, x: Tensor, norm: Any) -> Tensor:
        """Applies a norm to queries or keys x (b, h, t, d), and clips them with clip_normed."""
        return self._clipped(norm(x)) if self.clip_normed else norm(x)

    def kernel_inputs(
        self, q: Tensor, k: Tensor, scores: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the queries and keys that the kernel multiplies, or scores in place of the
        products. Subclasses override it.
        """
        return q, k, scores

    def attend(self, q, k, v, context, scores: Tensor | None, *score_fn) -> Tensor:
        """Calls the kernel: weights from q k^T, or from `scores`, times v: (b, h, t, e)."""
        dropout = self.dropout if self.training else 0.0
        return self.kernel(q, k, v, context, self.factor, dropout, scores, *score_fn)

    def _projected(self, x: Tensor) -> Tensor:
        """Clips queries or keys as projected, unless their norms come first."""
        return x if self.clip_normed else self._clipped(x)

    def _clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def cache(self, rows, length):
        if not self.own_keys:
            return None
        shapes = (
            (rows, self.kv_heads, length, channels) for channels in (self.head_dim, self.v_head_dim)
        )
        cache_class = KeyValueCache if self.score is None else self.score.cache
        return cache_class.of(self, *shapes)


def _unused_with_earlier_keys(options: Any) -> Iterator[Fault]:
    """Yields the options that an attention without keys of its own cannot have."""
    if options.v_norm != "none":
        rule = "normalises values, and with keys=earlier they are those of another layer"
        yield Unused("v_norm", rule, got=options.v_norm, fix="Leave it out.")
    if options.score.component.cache is not KeyValueCache:
        yield Fault(
            "score",
            f"'{options.score['name']}' keeps a cache of its own keys, and keys=earlier has none",
            fix="Choose attn.score=softmax there.",
        )
