"""Positions that prove the contract: a learned bias per head, and scores that depend on content."""

import math

import torch
from torch import nn

from xformer_kit.position import POSITIONS, Position
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors.tokens import expand_heads


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
        buckets: int = 8,  # distances that have their own row
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

    def scores(self, attn, q, k, context):
        heads, size = q.shape[1], 2 * self.span
        far_q, far_k = (
            attn.queries_of(self.weight[None]),
            attn.keys_of(self.weight[None]),
        )  # (1, h, 2 span, d)
        k, far_k = expand_heads(k, heads), expand_heads(far_k, heads)
        apart = (
            context.query.position[:, None, :, None] - context.key.position[:, None, None, :]
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
