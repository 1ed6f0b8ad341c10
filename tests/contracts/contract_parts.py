"""Parts that are here to prove the contracts: each enters where no built-in part does, and is
correct where it stands.

They are registered while the tests of this directory run, and taken back behind them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS, Attention, Cache, check_heads, device_and_dtype
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.ffn import FFN, FFNS
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.reference import spread
from xformer_kit.model.cache import KeyValueCache
from xformer_kit.placement import PLACEMENTS, Placement
from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import ConfigError, Fault, at_least


@ATTENTIONS.register("test_latent")
class Latent(Attention):
    """Keys and values of all heads are read from one latent per token, c = norm(x D): k = [c K,
    rotated(x R)], v = c V (DeepSeek-AI, 2024, arXiv:2405.04434, section 2.1.2 and 2.1.3). The cache
    holds c and the rotated part alone.
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        *,
        heads: int = 4,  # query heads
        rank: int = 8,  # channels of the latent
        # channels that the position rotates: of every query head, and one key part for all heads
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

    def forward(self, x, source, view, cache=None):
        seen, where = (x, view.query) if source is None else (source, view.key)
        q = (
            self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        )  # (b, t, h * (d + r)) -> (b, h, t, d + r)
        q, q_turned = q.split([self.head_dim, self.turned], -1)
        q_turned = view.position.rotate(q_turned, view.query)
        if cache is not None and cache.length and source is not None:  # a source is read once
            latent, k_turned = cache.kept()
        else:
            latent, k_turned = (
                self.norm(self.down(seen))[:, None],
                self.r(seen)[:, None],
            )  # each (b, 1, s, .)
            k_turned = view.position.rotate(k_turned, where)
            if cache is not None:
                latent, k_turned = cache.append(latent, k_turned)
        k, v = (
            p(latent[:, 0]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for p in (self.k, self.v)
        )
        k = torch.cat([k, k_turned.expand(-1, self.heads, -1, -1)], -1)
        out = self.kernel(torch.cat([q, q_turned], -1), k, v, view, self.scale)
        return self.o(out.transpose(1, 2).flatten(2))

    def cache(self, rows, length, view=None):
        device, dtype = device_and_dtype(self)
        shapes = [(rows, 1, length, channels) for channels in (self.down.out_features, self.turned)]
        return KeyValueCache(*shapes, dtype=dtype, device=device)


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

    def forward(self, x, source, view, cache=None):
        # Before the split into heads: on a transposed tensor, elu's gradient is traced with other
        # strides than it has.
        rows = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        q, k, v = (row.unflatten(-1, (self.heads, -1)).transpose(1, 2) for row in rows)
        if view.query.real is not None:
            k = k * view.query.real[:, None, :, None]
        v = F.pad(v, (0, 1), value=1.0)  # the channel of ones sums up z beside S
        state = None if cache is None else cache.state.to(k.dtype)
        out, state = self.mix(q, k, v, state)
        if cache is not None:
            cache.append(state)
        top, bottom = out.split([self.head_dim, 1], -1)
        out = top / bottom.clamp(min=torch.finfo(out.dtype).tiny)  # a row that sees nothing is zero
        return self.o(out.transpose(1, 2).flatten(2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """(b, h, t, .) -> what every query reads (b, h, t, e), and the state (b, h, d, e) behind
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

    def cache(self, rows, length, view=None):
        device, dtype = device_and_dtype(self)
        return Recurrent(
            torch.zeros(
                rows, self.heads, self.head_dim, self.head_dim + 1, dtype=dtype, device=device
            )
        )


class Recurrent(Cache):
    """One state for the whole past: (rows, h, d, d + 1)."""

    rewinds = False

    def __init__(self, state: Tensor):
        self.state = state

    def append(self, *new):
        (self.state,) = new
        return self.state

    def select(self, rows):
        self.state = self.state[rows]

    def rewind(self, n):
        raise ConfigError(
            "attn 'test_linear': keeps one sum for the whole past and cannot forget the newest of"
            f" it; got {n} tokens. Begin again with an empty cache."
        )

    @property
    def bytes(self):
        return self.state.numel() * self.state.element_size()


@ATTENTIONS.register("test_first_values")
class FirstValues(MultiHead):
    """Values are mixed with those of the first layer, (v + v_first) / 2 (Zhou et al., 2024,
    arXiv:2410.17897, eq. 5): they cross layers in `view.memo`.
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        *,
        heads: int = 4,  # heads, dim / heads channels each
    ):
        super().__init__(dim, norm, kernel, heads=heads)

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "attn 'test_first_values' mixes values of its own tokens",
                fix="Give model.decoder.cross another name.",
            )
            return

    def forward(self, x, source, view, cache=None):
        q, k, v = (self.split(p(x)) for p in (self.q, self.k, self.v))
        first = view.memo.setdefault("values", v)
        k, v = view.position.rotate(k, view.query), (v + first) / 2
        if cache is not None:
            k, v = cache.append(k, v)
        out = self.kernel(view.position.rotate(q, view.query), k, v, view, self.scale)
        return self.o(out.transpose(1, 2).flatten(2))


@POSITIONS.register("test_t5")
class T5(Position):
    """One learned bias for each head and each bucket of distances: exact up to buckets / 2, then
    logarithmic up to `longest` (Raffel et al., 2020, arXiv:1910.10683, section 2.1). One table for
    the stack, past keys only.
    """

    def __init__(
        self,
        heads: int,
        *,
        buckets: int = 8,  # distances that are told apart
        longest: int = 16,  # tokens; what lies farther away shares the last bucket
    ):
        super().__init__()
        self.buckets, self.longest = buckets, longest
        self.weight = nn.Parameter(torch.zeros(buckets, heads))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "bucket", buckets=2)
        if options.longest <= options.buckets // 2:
            yield Fault(
                "longest",
                "must be above half the buckets",
                got=f"{options.longest} and {options.buckets}",
            )

    def bias(self, query, key, head):
        distance = (query.position - key.position).clamp(min=0)
        exact = self.buckets // 2
        ratio = (distance.clamp(min=1).double() / exact).log() / math.log(self.longest / exact)
        far = exact + (ratio * (self.buckets - exact)).long()
        bucket = torch.where(distance < exact, distance, far.clamp(max=self.buckets - 1))
        return self.weight[bucket, head]  # (b, 1, q, k) with (1, h, 1, 1) -> (b, h, q, k)


@POSITIONS.register("test_disentangled")
class Disentangled(Position):
    """(Qc Kc^T + Qc Kr^T + Kc Qr^T) / sqrt(3 d): the relative table goes through the attention's
    own query and key projections (He et al., 2021, arXiv:2006.03654, eq. 4; the sharing as in
    DeBERTa v3, arXiv:2111.09543).
    """

    def __init__(
        self,
        dim: int,
        *,
        span: int = 6,  # tokens; farther distances count as this one
    ):
        super().__init__()
        self.span = span
        self.weight = nn.Parameter(torch.zeros(2 * span, dim))  # one row for each distance

    check = classmethod(lambda cls, options, context: at_least(options, "token", span=1))

    @classmethod
    def cannot(cls, options, context):
        if not context.attn.projects:
            yield Fault(
                "",
                "position 'test_disentangled' sends its table through the queries' and keys'"
                f" projections, and attn '{context.names['attn']}' has none of that kind",
                fix="Use attn=multi_head.",
            )

    def scores(self, attn, q, k, view):
        heads, size = q.shape[1], 2 * self.span
        far_q, far_k = (
            attn.queries_of(self.weight[None]),
            attn.keys_of(self.weight[None]),
        )  # (1, h, 2 span, d)
        k, far_k = spread(k, heads), spread(far_k, heads)
        apart = (
            view.query.position[:, None, :, None] - view.key.position[:, None, None, :]
        )  # (b, 1, q, k)
        there, back = (
            (d + self.span).clamp(0, size - 1).expand(len(q), heads, -1, -1)
            for d in (apart, -apart.mT)
        )
        content = q @ k.mT
        to_place = (q @ far_k.mT).gather(-1, there)  # (b, h, q, 2 span) -> (b, h, q, k)
        from_place = (
            (k @ far_q.mT).gather(-1, back).mT
        )  # (b, h, k, 2 span) -> (b, h, k, q) -> (b, h, q, k)
        return (content + to_place + from_place) * (attn.scale / math.sqrt(3))


@PLACEMENTS.register("test_residual")
class ResiDual(Placement):
    """Two streams: x <- norm(x + f(x)) as in post, d <- d + f(x) as in pre; the output is x +
    norm(d) (Xie et al., 2023, arXiv:2304.14802, section 3.1).
    """

    streams = classmethod(lambda cls, options: 2)

    def __init__(self, norm: Callable[[], nn.Module]):
        super().__init__()
        self.norm = norm()

    def forward(self, state, sublayers, total, tokens):
        x, dual = state
        out = total([f(x) for f in sublayers])
        return self.norm(x + out), dual + out

    @staticmethod
    def finish(state, norm):
        x, dual = state
        return x + norm(dual)


@FFNS.register("test_router")
class Router(FFN):
    """sum_i g_i mlp_i(x) over the `chosen` experts with the highest p + bias, p = softmax(x R), g =
    p renormalised.

    The loss balance * experts * sum_i f_i P_i evens out shares of tokens f and mean probabilities P
    (Fedus et al., 2022, arXiv:2101.03961, eq. 4); behind every step, the bias rises for experts
    with less than their share of tokens (Wang et al., 2024, arXiv:2408.15664, algorithm 1).
    """

    def __init__(
        self,
        dim: int,
        *,
        experts: int = 4,  # networks to choose from
        chosen: int = 2,  # experts of a token
        width: int = 16,  # channels of an expert
        balance: float = 0.01,  # factor of the balancing loss
        rate: float = 0.001,  # how far the bias moves in a step
    ):
        super().__init__()
        self.experts, self.chosen, self.balance, self.rate = experts, chosen, balance, rate
        self.gate = nn.Linear(dim, experts, bias=False)
        self.up, self.down = Stack(experts, dim, width), Stack(experts, width, dim)
        self.register_buffer("bias", torch.zeros(experts))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "expert", experts=1, chosen=1)
        if options.chosen > options.experts:
            yield Fault(
                "chosen",
                "must be at most ffn.experts",
                got=f"{options.chosen} and {options.experts}",
                fix=f"Try {options.experts}.",
            )

    def forward(self, x, tokens):
        share = self.gate(x).softmax(-1)  # (b, t, experts)
        picked = (share + self.bias).topk(self.chosen, -1).indices
        mine = torch.zeros_like(share).scatter(-1, picked, 1.0)
        gates = share * mine
        gates = gates / gates.sum(-1, keepdim=True)
        out = torch.einsum("ebtd,bte->btd", self.down(F.gelu(self.up(x[None]))), gates)
        kept = (
            torch.ones_like(share[..., :1])
            if tokens.real is None
            else tokens.real[..., None].to(share)
        )
        load, count = (mine * kept).sum((0, 1)), kept.sum().clamp(min=1)
        mean = (share * kept).sum((0, 1)) / count
        loss = self.balance * self.experts * (load / (count * self.chosen) * mean).sum()
        return out, {"loss": loss, "load": load.detach()}

    @torch.no_grad()
    def after_step(self, report):
        load = report["load"]
        self.bias += self.rate * (load.mean() - load).sign()


class Stack(nn.Module):
    """One matrix per expert: (experts or 1, b, t, i) -> (experts, b, t, o)."""

    def __init__(self, experts: int, i: int, o: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, o, i))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("ebti,eoi->ebto", x.expand(len(self.weight), -1, -1, -1), self.weight)
