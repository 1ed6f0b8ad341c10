"""Positions whose component in a score depends on what the tokens hold."""

import math

import torch
from torch import Tensor, nn

from xformer_kit.model.tokens import AttentionContext
from xformer_kit.position.base import POSITIONS, Position, plain, spread
from xformer_kit.registry import Fault, at_least


def apart(context: AttentionContext) -> Tensor:
    """How many tokens a key stands before a query, (b, 1, q, k); below 0 where behind."""
    return context.query.position[:, None, :, None] - context.key.position[:, None, None, :]


def chosen(x: Tensor, index: Tensor) -> Tensor:
    """The column of x (b, h, q, n) that index (b or 1, 1, q, k) names -> (b, h, q, k)."""
    return x.gather(-1, index.expand(*x.shape[:2], -1, -1))


@POSITIONS.register("shaw", also_called=("relative_keys", "relative_position_representations"))
class Shaw(Position):
    """q_i (k_j + a[clip(j - i, -span, span)])^T * scale, one learned vector for each distance,
    shared by the heads (Shaw et al., 2018, arXiv:1803.02155, eq. 2 to 5). Farther tokens count as
    `span` away, so that there is no longest text.

    The paper's second table, which is added to the values (eq. 3), gains nothing there (table 3)
    and is left out.
    """

    looked_up = True

    def __init__(
        self,
        head_dim: int,
        *,
        span: int = 16,  # tokens to either side that are told apart
        per_layer: bool = True,  # a table for each layer; false: one for the stack
    ):
        super().__init__()
        self.span = span
        self.weight = nn.Parameter(torch.zeros(2 * span + 1, head_dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", span=1)

    def scores(self, attn, q, k, context):
        index = (-apart(context)).clamp(-self.span, self.span) + self.span
        return (q @ spread(k, q.shape[1]).mT + chosen(q @ self.weight.T, index)) * attn.scale


@POSITIONS.register("transformer_xl", also_called=("xl", "xlnet", "relative_sinusoidal"))
class TransformerXL(Position):
    """((q_i + u) k_j^T + (q_i + v) (W R[i - j])^T) * scale, with the sinusoid R of the distance
    (Dai et al., 2019, arXiv:1901.02860, section 3.3).

    u and v are learned for each head, and so is the projection W. There is no longest text.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        theta: float = 10_000.0,  # longest wavelength / 2 pi, tokens
        per_layer: bool = True,  # W, u and v for each layer; false: one of each for the stack
    ):
        super().__init__()
        self.dim = dim
        self.theta = theta
        self.r = nn.Linear(dim, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, head_dim))
        self.v = nn.Parameter(torch.zeros(heads, head_dim))

    @classmethod
    def check(cls, options, context):
        if options.theta <= 0:
            yield Fault("theta", "must be above 0 tokens", got=options.theta)

    @classmethod
    def cannot(cls, options, context):
        if context.dim % 2:
            yield Fault(
                "",
                "transformer_xl pairs sines with cosines, so model.dim must be even",
                got=context.dim,
            )

    def scores(self, attn, q, k, context):
        u, v = self.u[:, None], self.v[:, None]
        content = (q + u) @ spread(k, q.shape[1]).mT
        by_slots = not context.cross and plain(context.query) and plain(context.key)
        return (
            content
            + (self._by_table(q + v, context) if by_slots else self._by_angles(q + v, context))
        ) * attn.scale

    def _by_table(self, q: Tensor, context: AttentionContext) -> Tensor:
        """q_i (W R[i - j])^T with one row of W R for each distance; the numbers of tokens bound
        distances.
        """
        first, last = 1 - context.query.length, context.key.length - 1
        waves = self._waves(torch.arange(first, last + 1, device=q.device)).to(q.dtype)
        far = (
            self.r(waves).unflatten(-1, (q.shape[1], -1)).transpose(0, 1)
        )  # (n, dim) -> (h, n, head_dim)
        return chosen(q @ far.mT, apart(context) - first)

    def _by_angles(self, q: Tensor, context: AttentionContext) -> Tensor:
        """The same for any positions, whose bounds only the device has: sin(i - j) and cos(i - j)
        are products of the sines and cosines of i and j, so that a score is a product of dim
        channels.
        """
        query, key = (
            self._waves(tokens.position).to(q.dtype)[:, None]
            for tokens in (context.query, context.key)
        )
        sin, cos = query.chunk(2, -1)  # (b, 1, t, dim / 2)
        of_sin, of_cos = (q @ self.r.weight.unflatten(0, (q.shape[1], -1))).chunk(
            2, -1
        )  # (b, h, t, dim / 2)
        turned = torch.cat([of_cos * sin - of_sin * cos, of_sin * sin + of_cos * cos], -1)
        return turned @ key.mT

    def _waves(self, distance: Tensor) -> Tensor:
        """All sines, then all cosines, (...) -> (..., dim)."""
        wide = (
            torch.float32 if distance.device.type == "mps" else torch.float64
        )  # mps has no float64
        rate = torch.arange(0, self.dim, 2, device=distance.device, dtype=wide) * (
            -math.log(self.theta) / self.dim
        )
        angle = distance[..., None].to(wide) * rate.exp()
        return torch.cat([angle.sin(), angle.cos()], -1)


@POSITIONS.register("disentangled", also_called=("deberta",))
class Disentangled(Position):
    """(Qc Kc^T + Qc Kr[i - j]^T + Kc Qr[i - j]^T) * scale / sqrt(terms), r a table of distances (He
    et al., 2021, arXiv:2006.03654, eq. 4).

    The table goes through the attention's own query and key projections, and has logarithmic
    buckets, as in DeBERTa v2 and v3 (arXiv:2111.09543). Farther tokens share a row, so that there
    is no longest text.
    """

    # Paper: the third term has Qr[j - i].   Here, as in the released code and checkpoints: Qr[i -
    # j].

    looked_up = True

    def __init__(
        self,
        dim: int,
        *,
        buckets: int = 256,  # rows of the table for either direction
        longest: (
            int | None
        ) = 512,  # tokens: rows widen from buckets / 2 up to it; null: a row per distance
        content_to_position: bool = True,  # whether queries meet the table's keys
        position_to_content: bool = True,  # whether keys meet the table's queries
        norm: bool = False,  # whether the table goes through a LayerNorm, as in DeBERTa v2
    ):
        super().__init__()
        self.buckets = buckets
        self.longest = longest
        self.to_place = content_to_position
        self.from_place = position_to_content
        self.weight = nn.Parameter(torch.zeros(2 * buckets, dim))
        self.norm = nn.LayerNorm(dim, eps=1e-7) if norm else nn.Identity()

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "rows", buckets=2)
        if options.longest is not None and options.longest - 1 <= options.buckets // 2:
            got = f"{options.longest} and {options.buckets}"
            way = f"Try {options.buckets // 2 + 2}."
            yield Fault("longest", "must be above buckets / 2 + 1", got, way)
        if not (options.content_to_position or options.position_to_content):
            yield Fault(
                "position_to_content",
                "one of the two terms must stay",
                got="neither",
                fix="Choose position=none for none.",
            )

    @classmethod
    def cannot(cls, options, context):
        if not context.attn.projects:
            yield Fault(
                "",
                "disentangled sends its table through the queries' and keys' projections, and attn"
                f" '{context.names['attn']}' has none of that kind",
                fix="Use attn=multi_head.",
            )

    def scores(self, attn, q, k, context):
        heads, table = q.shape[1], self.norm(self.weight)[None]
        k, row = spread(k, heads), self.row(apart(context))  # (b, 1, q, k)
        total = q @ k.mT
        if self.to_place:
            total = total + chosen(q @ spread(attn.keys_of(table), heads).mT, row)
        if self.from_place:
            total = total + chosen(k @ attn.queries_of(table).mT, row.mT).mT
        return total * (attn.scale / math.sqrt(1 + self.to_place + self.from_place))

    def row(self, distance: Tensor) -> Tensor:
        """query - key, in tokens -> a row of the table, of the same shape."""
        if self.longest is not None:
            middle = self.buckets // 2
            far = (distance.abs().clamp(min=middle).float() / middle).log() / math.log(
                (self.longest - 1) / middle
            )
            wide = ((far * (middle - 1)).ceil().long() + middle) * distance.sign()
            distance = torch.where(distance.abs() <= middle, distance, wide)
        return (distance + self.buckets).clamp(0, 2 * self.buckets - 1)
