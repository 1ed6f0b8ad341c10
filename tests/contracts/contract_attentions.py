"""Attentions that prove the contract: latent cache, recurrent state, values of the first layer."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import HeadShape, MultiHead
from xformer_kit.attention.base import ATTENTIONS, Attention, Cache
from xformer_kit.attention.heads import check_heads
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault, at_least, config_error
from xformer_kit.tensors.cache import KeyValueCache


@ATTENTIONS.register("test_latent")
class Latent(Attention):
    """Keys and values of all heads are read from one latent per token, c = norm(x D): k = [c K,
    rotated(x R)], v = c V (DeepSeek-AI, 2024, arXiv:2405.04434, section 2.1.2 and 2.1.3). The cache
    holds only c and the rotated component.
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        *,
        heads: int = 4,  # query heads
        rank: int = 8,  # channels of the latent
        # channels that the position rotates: of every query head, and one key component for all
        # heads
        turned: int = 4,
    ):
        super().__init__()
        self.heads, self.head_dim, self.turned = heads, dim // heads, turned
        self.scale = (self.head_dim + turned) ** -0.5
        self.q = nn.Linear(dim, heads * (self.head_dim + turned), bias=False)
        self.down = nn.Linear(dim, rank, bias=False)
        self.r = nn.Linear(dim, turned, bias=False)
        self.norm = norm(rank)
        self.k = nn.Linear(rank, heads * self.head_dim, bias=False)
        self.v = nn.Linear(rank, heads * self.head_dim, bias=False)
        self.o = nn.Linear(heads * self.head_dim, dim, bias=False)
        self.kernel = kernel

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", rank=1, turned=1)

    @classmethod
    def traits(cls, options, dim):
        rotated = {"head_dim": options["turned"], "head_dim_option": "turned"}
        return replace(super().traits(options, dim), **rotated)

    def forward(self, x, source, context, cache=None):
        seen, where = (x, context.query) if source is None else (source, context.key)
        q = (
            self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        )  # (b, t, h * (d + r)) -> (b, h, t, d + r)
        q, q_turned = q.split([self.head_dim, self.turned], -1)
        q_turned = context.position.rotate(q_turned, context.query)
        if cache is not None and cache.length and source is not None:  # a source is read once
            latent, k_turned = cache.kept()
        else:
            latent, k_turned = (
                self.norm(self.down(seen))[:, None],
                self.r(seen)[:, None],
            )  # each (b, 1, s, .)
            k_turned = context.position.rotate(k_turned, where)
            if cache is not None:
                latent, k_turned = cache.append(latent, k_turned)
        k, v = (
            p(latent[:, 0]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for p in (self.k, self.v)
        )
        k = torch.cat([k, k_turned.expand(-1, self.heads, -1, -1)], -1)
        out = self.kernel(torch.cat([q, q_turned], -1), k, v, context, self.scale)
        return self.o(out.transpose(1, 2).flatten(2))

    def cache(self, rows, length):
        shapes = [(rows, 1, length, channels) for channels in (self.down.out_features, self.turned)]
        return KeyValueCache.of(self, *shapes)


@ATTENTIONS.register("test_linear")
class Linear(Attention):
    """phi(q)^T S / phi(q)^T z with S = sum phi(k) v^T, z = sum phi(k) over the past, phi(x) =
    elu(x) + 1 (Katharopoulos et al., 2020, arXiv:2006.16236, eq. 9 and 18-20). The cache holds S
    and z, whatever the length.
    """

    CHUNK = 8  # tokens whose pairs are taken directly; what lies before them comes as a sum

    breaks = {"documents": "a sum over the past does not tell documents apart"}

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,  # heads, dim / heads channels each
    ):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    check = classmethod(lambda cls, options, context: check_heads(options, context))

    @classmethod
    def cannot(cls, options, context):
        position, mask, kernel = (context.names[kind] for kind in ("position", "mask", "kernel"))
        if set(context.position.enters) - {"embed"}:
            yield Fault(
                "",
                f"attn 'test_linear' never forms the scores that position '{position}' works on",
                fix="Use position=none, learned or sinusoidal.",
            )
            return
        if context.mask.band != (math.inf, 0) or context.cross:
            yield Fault(
                "",
                f"attn 'test_linear' sums over the whole past, and mask '{mask}' hides some of it"
                " or adds to it",
                fix="Use mask=causal.",
            )
            return
        if kernel != "auto":
            yield Fault(
                "",
                f"attn 'test_linear' forms no scores that kernel '{kernel}' could compute",
                fix="Use kernel=auto.",
            )

    def forward(self, x, source, context, cache=None):
        # Before the split into heads: on a transposed tensor, elu's gradient is traced with other
        # strides than it has.
        rows = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        q, k, v = (row.unflatten(-1, (self.heads, -1)).transpose(1, 2) for row in rows)
        if context.query.real is not None:
            k = k * context.query.real[:, None, :, None]
        v = F.pad(v, (0, 1), value=1.0)  # the channel of ones sums up z next to S
        state = None if cache is None else cache.state.to(k.dtype)
        out, state = self.mix(q, k, v, state)
        if cache is not None:
            cache.append(state)
        top, bottom = out.split([self.head_dim, 1], -1)
        out = top / bottom.clamp(min=torch.finfo(out.dtype).tiny)  # a row that sees nothing is zero
        return self.o(out.transpose(1, 2).flatten(2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """(b, h, t, .) -> what every query reads (b, h, t, e), and the state (b, h, d, e) after
        the last token.
        """
        length = q.shape[-2]
        q, k, v = (
            F.pad(a, (0, 0, 0, -length % self.CHUNK)).unflatten(-2, (-1, self.CHUNK))
            for a in (q, k, v)
        )
        sums = (k.transpose(-1, -2) @ v).cumsum(2)  # (b, h, n, d, e): up to and with each chunk
        before = F.pad(sums, (0, 0, 0, 0, 1, 0))[:, :, :-1]
        last = sums[:, :, -1]
        if state is not None:
            before, last = before + state[:, :, None], last + state
        out = (q @ k.transpose(-1, -2)).tril() @ v + q @ before
        return out.flatten(2, 3)[:, :, :length], last

    def cache(self, rows, length):
        state = rows, self.heads, self.head_dim, self.head_dim + 1
        like = next(self.parameters())  # sharded, its new_zeros would be sharded too
        return Recurrent(torch.zeros(state, dtype=like.dtype, device=like.device))


class Recurrent(Cache):
    """One state for the whole past: (rows, h, d, d + 1)."""

    can_rewind = False

    def __init__(self, state: Tensor):
        self.state = state

    def append(self, *new):
        (self.state,) = new
        return self.state

    def select(self, rows):
        self.state = self.state[rows]

    def rewind(self, n):
        raise config_error(
            "attn 'test_linear'",
            "keeps one sum for the whole past and cannot forget the newest of it",
            f"{n} tokens",
            "Begin again with an empty cache.",
        )

    @property
    def bytes(self):
        return self.state.numel() * self.state.element_size()


@ATTENTIONS.register("test_first_values")
class FirstValues(MultiHead):
    """Values are mixed with those of the first layer, (v + v_first) / 2 (Zhou et al., 2024,
    arXiv:2410.17897, eq. 5): they cross layers in `context.cross_layer_state`.
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        *,
        heads: int = 4,  # heads, dim / heads channels each
    ):
        super().__init__(dim, norm, kernel, shape=HeadShape(heads))

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "attn 'test_first_values' mixes values of its own tokens",
                fix="Give model.decoder.cross another name.",
            )
            return

    def forward(self, x, source, context, cache=None):
        q, k, v = (self.split(p(x)) for p in (self.q, self.k, self.v))
        first = context.cross_layer_state.setdefault("values", v)
        k, v = context.position.rotate(k, context.query), (v + first) / 2
        if cache is not None:
            k, v = cache.append(k, v)
        out = self.kernel(context.position.rotate(q, context.query), k, v, context, self.scale)
        return self.o(out.transpose(1, 2).flatten(2))
