"""Linear attention: weights are products of features, so that the past is a state of fixed size."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS
from xformer_kit.attention.heads import check_heads, head_channels
from xformer_kit.attention.recurrent import Recurrent, real_tokens
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.recurrence import Recurrence, segments
from xformer_kit.registry import Fault, Unused, above, at_least
from xformer_kit.tensors import hidden
from xformer_kit.tensors.cache import StateCache
from xformer_kit.tensors.precision import at_least_fp32, no_autocast
from xformer_kit.tensors.tokens import AttentionContext

FeatureMap = Literal["elu", "relu", "softmax", "taylor", "identity"]


def taylor(x: Tensor) -> Tensor:
    """(..., d) -> (..., 1 + d + d^2), whose products are 1 + s + s^2 / 2 with s = x y / sqrt(d)."""
    x = x * x.shape[-1] ** -0.25
    squares = (x[..., None] * x[..., None, :]).flatten(-2) * 0.5**0.5
    return torch.cat([torch.ones_like(x[..., :1]), x, squares], -1)


MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: F.elu(x) + 1,
    "relu": F.relu,
    "softmax": lambda x: x.softmax(-1),
    "taylor": taylor,
    "identity": lambda x: x,
}


class Kernelized(Recurrent):
    """Base of linear attentions: out_i = sum_j (phi(q_i) . phi(k_j)) v_j / sum_j (phi(q_i) .
    phi(k_j)), computed as phi(q_i) S / phi(q_i) z.

    rotates_last: whether a position rotates the features, and only in the numerator, so that the
    denominator stays positive (Su et al., 2021, arXiv:2104.09864, eq. 19); else it rotates queries
    and keys.
    normalise: whether there is a denominator.
    features: number of features of a head.
    """

    breaks = {
        "device with documents": (
            "over whole texts each document has sums of its own, and only the device has their"
            " number"
        )
    }
    order_free = True
    rotates_last = False
    normalise = True
    features: int

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("heads*head_dim", "dim"),
        "v": hidden("heads*v_head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*v_head_dim", writes=True),
    }

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        heads: int,
        head_dim: int | None,
        v_head_dim: int | None,
        bias: bool,
    ):
        super().__init__()
        self.head_dim = head_channels(dim, heads, head_dim)
        self.v_head_dim = v_head_dim or self.head_dim
        self.heads = heads
        self.kernel = kernel
        self.q = nn.Linear(dim, heads * self.head_dim, bias)
        self.k = nn.Linear(dim, heads * self.head_dim, bias)
        self.v = nn.Linear(dim, heads * self.v_head_dim, bias)
        self.o = nn.Linear(heads * self.v_head_dim, dim, bias)

    fusible = ("q", "k", "v")

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", v_head_dim=1)
        yield from at_least(options, "token", chunk=1)

    def of_query(self, q: Tensor) -> Tensor:
        """Features (..., m) of queries (..., d)."""
        raise NotImplementedError

    def of_keys(
        self, k: Tensor, context: AttentionContext, segment: Tensor | None, top: Tensor | None
    ):
        """Features (b, h, t, m) of keys in their order, the logarithms of the factors on the state
        before each of them (b, h, t), or None, and the new `top`, a tensor (b, h, 1) that is passed
        from call to call, or None.
        """
        raise NotImplementedError

    def of_all(self, k: Tensor, seen: Tensor | None) -> Tensor:
        """Features (b, h, s, m) of keys that are summed regardless of their order; 0 where `seen`,
        (b, 1, s, 1), is False.
        """
        raise NotImplementedError

    def divided(self, top: Tensor, bottom: Tensor) -> Tensor:
        """The quotient of numerator (..., e) and denominator (..., 1)."""
        raise NotImplementedError

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        maps = self.project_qkv(x, source, context, cache)
        # (b, t, h * d) -> (b, t, h, d)
        q, *kv = (m.unflatten(-1, (self.heads, -1)) for m in map(at_least_fp32, maps))
        with no_autocast(x):
            if self.rotates_last:
                features = self.of_query(q).transpose(1, 2)
                rotated = context.position.rotate(features, context.query)
            else:
                q = context.position.rotate(q.transpose(1, 2), context.query)
                features = rotated = self.of_query(q)
            if source is None and context.mask.band()[1] == 0:
                out = self._causal(features, rotated, *kv, context, cache)
            else:
                out = self._sum_all(features, rotated, kv, context, cache)
        return self.o(out.to(maps[0].dtype).transpose(1, 2).flatten(2))

    def _causal(self, features, rotated, k, v, context, cache):
        """Causal attention (b, h, t, e): sums over the past, starting from the cached state, which
        is updated. `rotated`: the features after the position.
        """
        cached = () if cache is None or not cache.length else cache.tensors
        state, top = (*cached, None, None)[:2]
        segment, v = segments(context), v.transpose(1, 2)
        if not self.rotates_last:
            k = context.position.rotate_key(k.transpose(1, 2), context.query).transpose(1, 2)
        keys, decay, top = self.of_keys(k, context, segment, top)
        rotated_keys = keys
        if self.rotates_last:
            rotated_keys = context.position.rotate_key(keys, context.query)
        if self.normalise and rotated is features:
            v = F.pad(v, (0, 1), value=1.0)  # a channel of ones, whose sum is z
            rotated_keys = keys
        numerator = Recurrence(rotated, rotated_keys, v, decay, None, segment)
        if not self.normalise or rotated is features:
            out, state = self.run_recurrence(numerator, state)
        else:
            of_v, of_one = (None, None) if state is None else (state[..., :-1], state[..., -1:])
            out, of_v = self.run_recurrence(numerator, of_v)
            ones = torch.ones_like(v[..., :1])
            denominator = Recurrence(features, keys, ones, decay, None, segment)
            sums, of_one = self.run_recurrence(denominator, of_one)
            out, state = torch.cat([out, sums], -1), torch.cat([of_v, of_one], -1)
        if cache is not None:
            cache.append(state, *(() if top is None else (top,)))
            cache.length += v.shape[2]
        return self._divide(out)

    def _divide(self, out: Tensor) -> Tensor:
        """The output from the sums (b, h, t, e), or (b, h, t, e + 1) with their denominator."""
        return self.divided(out[..., :-1], out[..., -1:]) if self.normalise else out

    def _sum_all(self, features, rotated, kv, context, cache):
        """Sums over all keys, or over those of each document. Real tokens attend to none of an
        earlier call: a cache refuses that where a mask sees the future.
        """
        if kv:
            if not context.cross:
                context = context._replace(key=context.query)
            document = context.key.document if context.query.document is not None else None
            documents = None if document is None else document.unique()
            sums = list(self._document_sums(*kv, context, documents))
            if cache is not None and context.cross:
                cache.append(*sums)
                cache.documents, cache.length = documents, kv[0].shape[1]
        else:
            sums, documents = cache.tensors, cache.documents
        out = None
        for i, state in enumerate(sums):
            term = rotated @ state[..., : self.v_head_dim]
            if self.normalise:
                term = torch.cat([term, features @ state[..., self.v_head_dim :]], -1)
            if documents is not None:
                term = term * (context.query.document == documents[i])[:, None, :, None]
            out = term if out is None else out + term
        return self._divide(out)

    def _document_sums(self, k, v, context, documents):
        """Yields the sums over the keys of each document, or over all keys."""
        real, v = real_tokens(context.key), v.transpose(1, 2)
        if not self.rotates_last:
            k = context.position.rotate_key(k.transpose(1, 2), context.key).transpose(1, 2)
        for document in [None] if documents is None else documents:
            seen = real
            if document is not None:
                same = (context.key.document == document)[:, None, :, None]
                seen = same if real is None else same & real
            keys = rotated_keys = self.of_all(k, seen)
            if self.rotates_last:
                rotated_keys = context.position.rotate_key(keys, context.key)
            total = rotated_keys.mT @ v
            yield torch.cat([total, keys.sum(-2)[..., None]], -1) if self.normalise else total

    def cache(self, rows, length):
        state = rows, self.heads, self.features, self.v_head_dim + self.normalise
        return StateCache.of(self, state)


@ATTENTIONS.register("linear", also_called=("linear_attention", "linear_transformer"))
class LinearAttention(Kernelized):
    """phi(q_i) S_i / phi(q_i) z_i with S_i = sum phi(k_j)^T v_j and z_i = sum phi(k_j) over the
    visible keys (Katharopoulos et al., 2020, arXiv:2006.16236, eq. 5, 9 and 18 to 20).

    feature_map: elu(x) + 1, relu(x), a softmax over head_dim, or taylor: 1 + d + d^2 features whose
    products are the second Taylor polynomial of exp(q k / sqrt(d)) (Arora et al., 2024,
    arXiv:2402.18668, section 3.1). `identity` has products of any sign and is not divided by their
    sum. Without `normalise` the sum is divided by sqrt(head_dim). A rotation is applied to the
    features in S only (Su et al., 2021, arXiv:2104.09864, eq. 19), with taylor to queries and keys.
    """

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 8,  # heads, each with queries, keys and values
        head_dim: int | None = None,  # channels of a head's queries and keys; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        feature_map: FeatureMap = "elu",  # phi
        normalise: bool = True,  # whether the sum is divided by the sum of the weights
        eps: float = 1e-6,  # added to the sum of weights
        bias: bool = False,  # whether the four projections have biases
        chunk: int = 64,  # tokens that are computed at once in training
    ):
        super().__init__(dim, kernel, heads, head_dim, v_head_dim, bias)
        self.map = MAPS[feature_map]
        self.rotates_last = feature_map != "taylor"
        d = self.head_dim
        self.features = 1 + d + d * d if feature_map == "taylor" else d
        self.normalise = normalise
        self.eps = eps
        self.chunk = chunk
        self.scale = 1.0 if normalise else d**-0.5

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, eps=0)
        if options.normalise and options.feature_map == "identity":
            yield Fault(
                "feature_map",
                "'identity' has weights of either sign, whose sum may be 0",
                fix="Set normalise=false, or feature_map=elu.",
            )

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if not options.normalise:
            yield Unused(
                "eps",
                "is added to the sum of weights, by which normalise=false does not divide",
                got=options.eps,
                fix="Leave it out.",
            )

    def of_query(self, q):
        return self.map(q) * self.scale if self.scale != 1 else self.map(q)

    def of_keys(self, k, context, segment, top):
        return self.of_all(k, real_tokens(context.query)), None, None

    def of_all(self, k, seen):
        keys = self.map(k).transpose(1, 2)
        return keys if seen is None else keys * seen

    def divided(self, top, bottom):
        return top / (bottom + self.eps)
