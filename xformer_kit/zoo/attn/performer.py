"""Performer: softmax attention approximated by random features."""

import math
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.attention import ATTENTIONS, Kernelized, real_tokens
from xformer_kit.kernel import Kernel
from xformer_kit.registry import at_least


def orthogonal(rows: int, channels: int, generator: torch.Generator) -> Tensor:
    """Rows (rows, channels) that are each a draw of N(0, I), and orthogonal within each group of as
    many as channels.
    """
    draw = partial(torch.randn, generator=generator, dtype=torch.float64, device="cpu")
    groups = []
    for _ in range(-(-rows // channels)):
        q, r = torch.linalg.qr(draw(channels, channels))
        # With LAPACK's signs of r some directions would be rarer.
        groups.append((q * r.diag().sign()).mT)
    return torch.cat(groups)[:rows] * draw(rows, channels).norm(dim=-1)[:, None]


@ATTENTIONS.register(
    "performer", also_called=("favor", "favor_plus", "favor+"), similar=("random_features",)
)
class Performer(Kernelized):
    """phi(q_i) S_i / phi(q_i) z_i as in `linear`, with random features that estimate softmax
    (FAVOR+: Choromanski et al., 2020, arXiv:2009.14794, lemma 1, section 2.4).

    phi(x) = exp(W y - |y|^2 / 2), y = x / head_dim^(1/4): products are exp(q k / sqrt(head_dim)) on
    average. W is drawn once, with rows that are orthogonal, from `seed` and the number of the
    layer; heads share it. `relu` has phi(x) = max(W y, 0) + 0.001 in its place, the generalized
    attention of section 2.2. A rotation is applied to features, and only in S (Su et al., 2021,
    arXiv:2104.09864, eq. 19).

    Features are computed in at least fp32, relative to the query's largest and to the largest of
    all keys so far, which cancels, so that none overflows. Two limits remain. phi(q_i) z_i below
    tiny^(1/2), e^-43 in fp32, counts as that number: a query whose large features are small in all
    keys reads almost 0. With a rotation the quotient is not a mean of values and has no bound: for
    |q|^2 >> sqrt(head_dim) it exceeds the largest number of fp16.
    """

    variants = [{"heads": 2, "features": 12}]
    rotates_last = True
    random: Tensor

    def __init__(
        self,
        dim: int,
        depth: int,
        kernel: Kernel,
        *,
        heads: int = 8,  # heads, each with queries, keys and values
        head_dim: int | None = None,  # channels of a head's queries and keys; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        # random features of a head; null is head_dim ln(head_dim), and even
        features: int | None = None,
        estimates: Literal["softmax", "relu"] = "softmax",  # what products of features are
        seed: int = 0,  # of the random features
        bias: bool = False,  # whether the four projections have biases
        chunk: int = 64,  # tokens that are computed at once in training
    ):
        super().__init__(dim, kernel, heads, head_dim, v_head_dim, bias)
        d = self.head_dim
        self.features = features or default_features(d)
        self.chunk = chunk
        self.positive = estimates == "softmax"
        self.register_buffer("random", self._drawn(d, (seed * 100_003 + depth) % 2**63))

    def _drawn(self, channels: int, seed: int) -> Tensor:
        """The rows of W, (features, channels), scaled by channels^(-1/4); not drawn on the meta
        device.
        """
        device = self.q.weight.device
        if device.type == "meta":
            return torch.empty(self.features, channels, device=device)
        random = orthogonal(self.features, channels, torch.Generator().manual_seed(seed))
        return (random * channels**-0.25).to(torch.get_default_dtype()).to(device)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, "feature", features=1)
        yield from at_least(options, seed=0)

    @classmethod
    def traits(cls, options, dim):
        traits = super().traits(options, dim)
        rotated = options.get("features") or default_features(traits.head_dim)
        return replace(traits, head_dim=rotated, head_dim_option="features")

    def logs(self, x: Tensor) -> Tensor:
        """The logarithms of the features, (..., d) -> (..., m)."""
        products = x @ self.random.to(x.dtype).mT
        return products - x.square().sum(-1, keepdim=True) * (0.5 * self.head_dim**-0.5)

    def relus(self, x: Tensor) -> Tensor:
        """The features of estimates=relu, (..., d) -> (..., m)."""
        return F.relu(x @ self.random.to(x.dtype).mT) + 1e-3

    def of_query(self, q):
        if not self.positive:
            return self.relus(q)
        logs = self.logs(q)
        return (logs - logs.amax(-1, keepdim=True).detach()).exp()

    def of_keys(self, k, context, segment, top):
        k, real = k.transpose(1, 2), real_tokens(context.query)
        if not self.positive:
            return (self.relus(k) if real is None else self.relus(k) * real), None, None
        logs = self.logs(k)
        if real is not None:
            logs = logs.masked_fill(~real, -math.inf)
        with torch.no_grad():
            high = logs.amax(-1)  # (b, h, t)
            past = torch.full_like(high[..., :1], -math.inf) if top is None else top.to(high)
            high = running_max(torch.cat([past, high], -1), segment)
            decay = high[..., :-1] - high[..., 1:]
            # Before the first key the state is 0.
            decay = decay.masked_fill(~(high[..., :-1] > -math.inf), 0)
            if segment is not None:
                begins = segment != F.pad(segment[:, :-1], (1, 0))
                decay = decay.masked_fill(begins[:, None], 0)
        keys = (logs - high[..., 1:, None].clamp(min=torch.finfo(logs.dtype).min)).exp()
        return keys, decay, high[..., -1:]

    def of_all(self, k, seen):
        k = k.transpose(1, 2)
        if not self.positive:
            return self.relus(k) if seen is None else self.relus(k) * seen
        logs = self.logs(k)
        if seen is not None:
            logs = logs.masked_fill(~seen, -math.inf)
        high = logs.amax((-1, -2), keepdim=True).detach()
        return (logs - high.clamp(min=torch.finfo(logs.dtype).min)).exp()

    def divided(self, top, bottom):
        return top / bottom.clamp(min=torch.finfo(bottom.dtype).tiny ** 0.5)

    def cache(self, rows, length):
        cache = super().cache(rows, length)
        if self.positive:
            cache.append(
                cache.tensors[0], cache.tensors[0].new_full((rows, self.heads, 1), -math.inf)
            )
        return cache


def default_features(channels: int) -> int:
    """The default number of features, d ln d (theorem 4), rounded up to an even number for
    rotations.
    """
    return 2 * max(1, math.ceil(channels * math.log(channels) / 2))


def running_max(x: Tensor, segment: Tensor | None) -> Tensor:
    """The running maximum of x (b, h, 1 + t), over all tokens or within each segment (b, t); x[...,
    0] belongs to segment 0.
    """
    if segment is None:
        return x.cummax(-1).values
    known = x.masked_fill(x.isinf(), 0)
    lift = F.pad(segment, (1, 0))[:, None] * (known.amax() - known.amin() + 1)
    return x.gather(-1, (x + lift).cummax(-1).indices)
