"""Attention whose weights are products of features, so that the past is one sum."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS, check_heads
from xformer_kit.attention.recurrent import Recurrent, StateCache, exact, real_of, unmixed
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.recurrence import Recurrence, segments
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import Fault, Unused, above, at_least

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
    """Base: out_i = sum_j (phi(q_i) . phi(k_j)) v_j / sum_j (phi(q_i) . phi(k_j)), as phi(q_i) S /
    phi(q_i) z.

    rotates_last: whether a position turns features, and that where values are summed alone, so that
    what is divided by stays above 0 (Su et al., 2021, arXiv:2104.09864, eq. 19); else it turns
    queries and keys.
    normalise: whether it divides.
    """

    breaks = {
        "device with documents": (
            "over whole texts each document has sums of its own, and only the device has their"
            " number"
        )
    }
    of_any_order = True
    rotates_last = False
    normalise = True
    features: int

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
        self.head_dim = head_dim or dim // heads
        self.v_head_dim = v_head_dim or self.head_dim
        self.heads = heads
        self.kernel = kernel
        self.q = nn.Linear(dim, heads * self.head_dim, bias)
        self.k = nn.Linear(dim, heads * self.head_dim, bias)
        self.v = nn.Linear(dim, heads * self.v_head_dim, bias)
        self.o = nn.Linear(heads * self.v_head_dim, dim, bias)

    packs = ("q", "k", "v")

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
        """Features (b, h, t, m) of keys that come one after another, how the sum of those before is
        to fall beside each (logarithms (b, h, t), or None), and what the next call must know of it,
        (b, h, 1) or None.
        """
        raise NotImplementedError

    def of_all(self, k: Tensor, seen: Tensor | None) -> Tensor:
        """Features (b, h, s, m) of keys that are summed at once; 0 where `seen`, (b, 1, s, 1), is
        False.
        """
        raise NotImplementedError

    def divided(self, top: Tensor, bottom: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x, source, context, cache=None):
        one_by_one = source is None and context.mask.band()[1] == 0
        maps = (
            (self.q(x), *self._read(x, source, cache))
            if self.packed is None or source is not None
            else self.packed(x)
        )
        q, *kv = (
            m.unflatten(-1, (self.heads, -1)) for m in map(exact, maps)
        )  # (b, t, h * d) -> (b, t, h, d)
        with unmixed(x):
            if self.rotates_last:
                features = self.of_query(q).transpose(1, 2)
                turned = context.position.rotate(features, context.query)
            else:
                features = turned = self.of_query(
                    context.position.rotate(q.transpose(1, 2), context.query)
                )
            if one_by_one:
                out = self._causal(features, turned, *kv, context, cache)
            else:
                out = self._whole(features, turned, kv, context, cache)
        return self.o(out.to(maps[0].dtype).transpose(1, 2).flatten(2))

    def _read(self, x, source, cache):
        """Keys and values as projected, of x or of a source that no cache has read."""
        if source is not None and cache is not None and cache.length:
            return ()
        x = x if source is None else source
        return self.k(x), self.v(x)

    def _causal(self, features, turned, k, v, context, cache):
        """Sums over the past, from what a cache holds of it on."""
        held = () if cache is None or not cache.length else cache.held
        state, top = (*held, None, None)[:2]
        segment, v = segments(context), v.transpose(1, 2)
        if not self.rotates_last:
            k = context.position.rotate_key(k.transpose(1, 2), context.query).transpose(1, 2)
        keys, decay, top = self.of_keys(k, context, segment, top)
        spun = context.position.rotate_key(keys, context.query) if self.rotates_last else keys
        if not self.normalise:
            out, state = self.recurred(Recurrence(turned, spun, v, decay, None, segment), state)
        elif turned is features:
            v = F.pad(v, (0, 1), value=1.0)  # the channel of ones sums up z beside S
            out, state = self.recurred(Recurrence(features, keys, v, decay, None, segment), state)
        else:
            of_v, of_one = (None, None) if state is None else (state[..., :-1], state[..., -1:])
            out, of_v = self.recurred(Recurrence(turned, spun, v, decay, None, segment), of_v)
            ones = torch.ones_like(v[..., :1])
            sums, of_one = self.recurred(
                Recurrence(features, keys, ones, decay, None, segment), of_one
            )
            out, state = torch.cat([out, sums], -1), torch.cat([of_v, of_one], -1)
        if cache is not None:
            cache.append(state, *(() if top is None else (top,)))
            cache.length += v.shape[2]
        return self._shared(out)

    def _shared(self, out: Tensor) -> Tensor:
        return self.divided(out[..., :-1], out[..., -1:]) if self.normalise else out

    def _whole(self, features, turned, kv, context, cache):
        """Sums over all keys; with documents one for each."""
        if kv:
            document = context.key.document if context.query.document is not None else None
            documents = None if document is None else document.unique()
            sums = list(self._sums(*kv, context, documents))
            if cache is not None and context.cross:
                cache.append(*sums)
                cache.documents, cache.length = documents, kv[0].shape[1]
        else:
            sums, documents = cache.held, cache.documents
        out = None
        for i, state in enumerate(sums):
            top = turned @ state[..., : self.v_head_dim]
            component = (
                torch.cat([top, features @ state[..., self.v_head_dim :]], -1)
                if self.normalise
                else top
            )
            if documents is not None:
                component = component * (context.query.document == documents[i])[:, None, :, None]
            out = component if out is None else out + component
        return self._shared(out)

    def _sums(self, k, v, context, documents):
        real, v = real_of(context.key), v.transpose(1, 2)
        if not self.rotates_last:
            k = context.position.rotate_key(k.transpose(1, 2), context.key).transpose(1, 2)
        for document in [None] if documents is None else documents:
            seen = real
            if document is not None:
                mine = (context.key.document == document)[:, None, :, None]
                seen = mine if real is None else mine & real
            keys = self.of_all(k, seen)
            spun = context.position.rotate_key(keys, context.key) if self.rotates_last else keys
            total = spun.mT @ v
            yield torch.cat([total, keys.sum(-2)[..., None]], -1) if self.normalise else total

    def cache(self, rows, length, context=None):
        return StateCache.of(
            self, (rows, self.heads, self.features, self.v_head_dim + self.normalise)
        )


@ATTENTIONS.register("linear", also_called=("linear_attention", "linear_transformer", "based"))
class Linear(Kernelized):
    """phi(q_i) S_i / phi(q_i) z_i with S_i = sum phi(k_j)^T v_j and z_i = sum phi(k_j) over what is
    seen (Katharopoulos et al., 2020, arXiv:2006.16236, eq. 5, 9 and 18 to 20).

    feature_map: elu(x) + 1, relu(x), a softmax over head_dim, or taylor: 1 + d + d^2 features whose
    products are the second Taylor polynomial of exp(q k / sqrt(d)) (Arora et al., 2024,
    arXiv:2402.18668, section 3.1). `identity` has products of any sign and is not divided by their
    sum. Without `normalise` the sum is divided by sqrt(head_dim) alone. A rotation turns features
    in S alone (Su et al., 2021, arXiv:2104.09864, eq. 19), and queries and keys before taylor.
    """

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 8,  # heads, each with queries, keys and values
        head_dim: int | None = None,  # channels of a head's queries and keys; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        feature_map: FeatureMap = "elu",  # what queries and keys go through
        normalise: bool = True,  # whether a sum is divided by that of its weights
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
                "is added to what sums are divided by, and normalise is false",
                got=options.eps,
                fix="Leave it out.",
            )

    def of_query(self, q):
        return self.map(q) * self.scale if self.scale != 1 else self.map(q)

    def of_keys(self, k, context, segment, top):
        return self.of_all(k, real_of(context.query)), None, None

    def of_all(self, k, seen):
        keys = self.map(k).transpose(1, 2)
        return keys if seen is None else keys * seen

    def divided(self, top, bottom):
        return top / (bottom + self.eps)
