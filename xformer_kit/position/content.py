"""Positions that add a term to each score, which depends on the content of the tokens."""

import math

import torch
from torch import Tensor, nn

from xformer_kit.position.base import POSITIONS, Position, SinusoidPosition, positions_are_slots
from xformer_kit.registry import Fault, above, at_least
from xformer_kit.tensors import SubmoduleInfo, embedding, hidden, vector
from xformer_kit.tensors.tokens import AttentionContext, expand_heads, scaled_products


def token_distances(context: AttentionContext) -> Tensor:
    """Query position minus key position, (b, 1, q, k); negative for later keys."""
    return context.query.position[:, None, :, None] - context.key.position[:, None, None, :]


def gather_columns(x: Tensor, index: Tensor) -> Tensor:
    """Gathers columns: x (b, h, q, n), index (b or 1, 1, q, k) -> (b, h, q, k)."""
    return x.gather(-1, index.expand(*x.shape[:2], -1, -1))


@POSITIONS.register("shaw", also_called=("relative_position_representations",))
class Shaw(Position):
    """q_i (k_j + a[clip(j - i, -span, span)])^T * scale, with one learned vector per distance that
    all heads share (Shaw et al., 2018, arXiv:1803.02155, eq. 2 to 5). Larger distances count as
    `span`, so the length is unlimited.

    The paper's second table, which is added to the values (eq. 3), does not improve results there
    (table 3) and is left out.
    """

    parameter_info = {"weight": embedding("positions", "head_dim")}

    def __init__(
        self,
        head_dim: int,
        *,
        span: int = 16,  # largest distance with a vector of its own, in tokens, on each side
        per_layer: bool = True,  # one table per layer; false: one per stack
    ):
        super().__init__()
        self.span = span
        self.weight = nn.Parameter(torch.zeros(2 * span + 1, head_dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", span=1)

    def scores(self, attn, q, k, context):
        index = (-token_distances(context)).clamp(-self.span, self.span) + self.span
        q = q * attn.scale  # before the products, which may overflow in fp16
        return q @ expand_heads(k, q.shape[1]).mT + gather_columns(q @ self.weight.T, index)


@POSITIONS.register("transformer_xl", also_called=("xl",))
class TransformerXL(SinusoidPosition):
    """((q_i + u) k_j^T + (q_i + v) (W R[i - j])^T) * scale, with the sinusoid R of the distance
    (Dai et al., 2019, arXiv:1901.02860, section 3.3).

    u, v and the projection W are learned for each head. The length is unlimited.
    """

    parameter_info = {
        "r": hidden("heads*head_dim", "dim"),
        "u": vector("heads", "head_dim"),
        "v": vector("heads", "head_dim"),
    }

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        theta: float = 10_000.0,  # longest wavelength / 2 pi, tokens
        per_layer: bool = True,  # W, u and v per layer; false: one of each per stack
    ):
        super().__init__(dim, theta)
        self.r = nn.Linear(dim, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, head_dim))
        self.v = nn.Parameter(torch.zeros(heads, head_dim))

    def scores(self, attn, q, k, context):
        u, v = self.u[:, None], self.v[:, None]
        content = scaled_products(q + u, k, attn.scale)
        by_slots = not context.cross and all(map(positions_are_slots, context[:2]))
        of_distance = self._by_table if by_slots else self._by_angles
        return content + of_distance((q + v) * attn.scale, context)

    def _by_table(self, q: Tensor, context: AttentionContext) -> Tensor:
        """q_i (W R[i - j])^T with one row of W R per distance; the numbers of tokens bound the
        distances.
        """
        first, last = 1 - context.query.length, context.key.length - 1
        distance = torch.arange(first, last + 1, device=q.device)
        rows = self.r(torch.cat(self.waves(distance), -1).to(q.dtype))
        rows = rows.unflatten(-1, (q.shape[1], -1)).transpose(0, 1)  # (n, h * d) -> (h, n, d)
        return gather_columns(q @ rows.mT, token_distances(context) - first)

    def _by_angles(self, q: Tensor, context: AttentionContext) -> Tensor:
        """q_i (W R[i - j])^T for any positions, whose bounds are known only on the device: sin(i -
        j) and cos(i - j) are sums of products of the sines and cosines of i and j, so a score is a
        product over dim channels.
        """
        query, key = (
            torch.cat(self.waves(tokens.position), -1).to(q.dtype)[:, None]
            for tokens in (context.query, context.key)
        )
        sin, cos = query.chunk(2, -1)  # (b, 1, t, dim / 2)
        projected = q @ self.r.weight.unflatten(0, (q.shape[1], -1))
        of_sin, of_cos = projected.chunk(2, -1)  # (b, h, t, dim / 2)
        rotated = torch.cat([of_cos * sin - of_sin * cos, of_sin * sin + of_cos * cos], -1)
        return rotated @ key.mT


@POSITIONS.register("disentangled", also_called=("deberta",))
class Disentangled(Position):
    """(Qc Kc^T + Qc Kr[i - j]^T + Kc Qr[i - j]^T) * scale / sqrt(terms), with a table r of
    distances (He et al., 2021, arXiv:2006.03654, eq. 4).

    The attention's own query and key projections are applied to the table, which has logarithmic
    buckets, as in DeBERTa v2 and v3 (arXiv:2111.09543). Large distances share a row, so the length
    is unlimited.
    """

    # Paper: the third term has Qr[j - i].   Here, as in the released code and checkpoints: Qr[i -
    # j].

    parameter_info = {
        "weight": embedding("positions", "dim"),
        "norm": SubmoduleInfo({"normalised": "dim"}),
    }

    def __init__(
        self,
        dim: int,
        *,
        buckets: int = 256,  # rows of the table for each direction
        # tokens: rows grow from buckets / 2 up to it; null: a row per distance
        longest: int | None = 512,
        content_to_position: bool = True,  # whether queries are multiplied by the table's keys
        position_to_content: bool = True,  # whether keys are multiplied by the table's queries
        norm: bool = False,  # whether the table is normalised by a LayerNorm, as in DeBERTa v2
    ):
        super().__init__()
        self.buckets = buckets
        self.longest = longest
        # log of the largest distance's share of the middle, in fp32 as in the released code
        share = 0.0 if longest is None else (longest - 1) / (buckets // 2)
        self.log_longest = float(torch.tensor(share, device="cpu").float().log())
        self.content_to_position = content_to_position
        self.position_to_content = position_to_content
        self.weight = nn.Parameter(torch.zeros(2 * buckets, dim))
        self.norm = nn.LayerNorm(dim, eps=1e-7) if norm else nn.Identity()

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "rows", buckets=2)
        fix = "That is buckets / 2 + 1."
        yield from above(options, fix, longest=options.buckets // 2 + 1)
        if not (options.content_to_position or options.position_to_content):
            yield Fault(
                "position_to_content",
                "one of the two terms must be true",
                got="neither",
                fix="Choose position=none for none.",
            )

    @classmethod
    def cannot(cls, options, context):
        if not context.attn.projects:
            yield Fault(
                "",
                "disentangled applies the query and key projections to its table, and attn"
                f" '{context.names['attn']}' has no such projections",
                fix="Use attn=multi_head.",
            )

    def scores(self, attn, q, k, context):
        heads, table = q.shape[1], self.norm(self.weight)[None]
        k, row = expand_heads(k, heads), self.row(token_distances(context))  # (b, 1, q, k)
        terms = 1 + self.content_to_position + self.position_to_content
        scale = attn.scale / math.sqrt(terms)  # before the products, which may overflow in fp16
        q = q * scale
        total = q @ k.mT
        if self.content_to_position:
            total = total + gather_columns(q @ expand_heads(attn.keys_of(table), heads).mT, row)
        if self.position_to_content:
            queries = attn.queries_of(table) * scale
            total = total + gather_columns(k @ queries.mT, row.mT).mT
        return total

    def row(self, distance: Tensor) -> Tensor:
        """Maps query - key, in tokens, to a row of the table, of the same shape."""
        if self.longest is not None:
            middle = self.buckets // 2
            far = (distance.abs().clamp(min=middle).float() / middle).log()
            far = far / self.log_longest
            bucket = ((far * (middle - 1)).ceil().long() + middle) * distance.sign()
            distance = torch.where(distance.abs() <= middle, distance, bucket)
        return (distance + self.buckets).clamp(0, 2 * self.buckets - 1)
