"""Positions that add a bias to each score, which depends only on the distance."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.registry import Unused, above, at_least
from xformer_kit.tensors import embedding
from xformer_kit.tensors.tokens import Tokens


@POSITIONS.register("alibi")
class Alibi(Position):
    """Subtracts slope * distance from each score, with one slope per head, 2^(-exponent i / heads)
    (Press et al., 2021, arXiv:2108.12409, section 3). Nothing is learned, and the length is
    unlimited.

    If the number of heads is not a power of two, there are two published rules. press: the slopes
    of p heads, with p the next lower power of two, and every second slope of 2 p heads, as in the
    authors' code, in BLOOM and, in another form, in MPT. geometric: the same ratio from head to
    head, as in the paper's text.

    factor: Falcon-RW adds slope * distance before scores are multiplied by head_dim^-0.5
    (Almazrouei et al., 2023, arXiv:2311.16867, the released code).
    """

    slope: Tensor

    def __init__(
        self,
        heads: int,
        *,
        slopes: Literal["press", "geometric"] = "press",  # the rule if heads is not a power of two
        # the smallest slope is 2^-exponent, the largest 2^(-exponent / heads)
        exponent: float = 8.0,
        # whether scores of later tokens are lowered like those of earlier ones; false: unchanged
        symmetric: bool = True,
        factor: float = 1.0,  # of all slopes; head_dim^-0.5 in Falcon-RW
    ):
        super().__init__()
        p = 2 ** (heads.bit_length() - 1)
        self.symmetric = symmetric

        def slopes_of(n: int) -> list[float]:
            return [2 ** (-exponent * (i + 1) / n) for i in range(n)]

        if slopes == "geometric":
            values = slopes_of(heads)
        else:
            values = slopes_of(p) + slopes_of(2 * p)[: 2 * (heads - p) : 2]
        slope = torch.tensor([factor * value for value in values])
        self.register_buffer("slope", slope, persistent=False)  # (heads,)

    @classmethod
    def check(cls, options, context):
        yield from above(options, exponent=0, factor=0)

    @classmethod
    def cannot(cls, options, context):
        heads = context.options["attn"].get("heads")
        if options.slopes == "geometric" and heads and heads & (heads - 1) == 0:
            rule = "applies if attn.heads is not a power of two, and it is one"
            yield Unused("slopes", rule, got=f"'geometric' and {heads}", fix="Leave it 'press'.")
        if not options.symmetric and not context.mask.sees_future:
            yield Unused(
                "symmetric",
                f"affects only later tokens, and mask={context.names['mask']} hides them",
                got="false",
                fix="Leave it true.",
            )

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        distance = query.position - key.position
        return -self.slope[head] * (distance.abs() if self.symmetric else distance.clamp(min=0))


@POSITIONS.register("t5", also_called=("relative_bias", "bucketed"), similar=("relative",))
class T5(Position):
    """One learned bias for each head and each bucket of distances (Raffel et al., 2020, JMLR
    21(140), section 2.1).

    The first half of the buckets hold one distance each, the others grow logarithmically up to
    `longest`, and the last one holds all larger distances, rounded as in the released code. The
    length is unlimited.
    """

    learned = True
    parameter_info = {"weight": embedding("positions", "heads")}

    def __init__(
        self,
        heads: int,
        stack: str,
        *,
        buckets: int = 32,  # distances with a bias of their own
        longest: int = 128,  # tokens; all larger distances share the last bucket
        # half of the buckets for later tokens, else 0; null: in an encoder
        bidirectional: bool | None = None,
        # one table per layer, as in UMT5, instead of one per stack
        per_layer: bool = False,
    ):
        super().__init__()
        self.bidirectional = stack == "encoder" if bidirectional is None else bidirectional
        self.buckets = buckets
        self.longest = longest
        self.weight = nn.Parameter(torch.zeros(buckets, heads))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "buckets", buckets=4)
        yield from above(options, "That is half the buckets.", longest=options.buckets // 2)

    def bias(self, query, key, head):
        bucket = self.bucket(query.position - key.position)
        return self.weight[bucket, head]  # (b, 1, q, k), (1, h, 1, 1) -> (b, h, q, k)

    def bucket(self, distance: Tensor) -> Tensor:
        """Maps query - key, in tokens, to a row of the table, of the same shape."""
        count, first = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            count //= 2
            first, distance = (distance < 0).long() * count, distance.abs()
        distance = distance.clamp(min=0)
        exact = count // 2
        far = (distance.clamp(min=1).float() / exact).log() / math.log(self.longest / exact)
        bucket = (exact + (far * (count - exact)).long()).clamp(max=count - 1)
        return first + torch.where(distance < exact, distance, bucket)
