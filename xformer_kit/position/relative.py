"""Positions that add to a score what follows from the distance alone."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.model.tokens import Tokens
from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.registry import Fault, Unused, above, at_least


def exact(x: Tensor) -> Tensor:
    """In fp32, or fp64 where it is: bf16 tells no two positions above 256 apart."""
    return x if x.dtype == torch.float64 else x.float()


@POSITIONS.register("alibi")
class Alibi(Position):
    """Lower a score by slope * distance, one slope per head: 2^(-exponent i / heads) (Press et al.,
    2021, arXiv:2108.12409, section 3). Nothing is learned, and there is no longest text.

    For a number of heads that is no power of two there are two published rules. press: the slopes
    of p heads, the power of two below, and every other one of 2 p, as in the authors' code, in
    BLOOM and, written otherwise, in MPT. geometric: the same ratio from head to head, as the
    paper's text has it for any number.
    """

    slope: Tensor

    def __init__(
        self,
        heads: int,
        *,
        slopes: Literal["press", "geometric"] = "press",  # the rule where heads is no power of two
        # the flattest slope is 2^-exponent, and 2^(-exponent / heads) the steepest
        exponent: float = 8.0,
        # whether later tokens are lowered like earlier ones; false: they are not lowered
        symmetric: bool = True,
    ):
        super().__init__()
        p = 2 ** (heads.bit_length() - 1)
        self.symmetric = symmetric

        def of(n: int) -> list[float]:
            return [2 ** (-exponent * (i + 1) / n) for i in range(n)]

        rule = of(heads) if slopes == "geometric" else of(p) + of(2 * p)[: 2 * (heads - p) : 2]
        self.register_buffer("slope", torch.tensor(rule), persistent=False)  # (heads,)

    @classmethod
    def check(cls, options, context):
        yield from above(options, exponent=0)

    @classmethod
    def cannot(cls, options, context):
        heads = context.options["attn"].get("heads")
        if options.slopes == "geometric" and heads and heads & (heads - 1) == 0:
            why = "is a rule for a number of heads that is no power of two, and attn.heads is one"
            yield Unused("slopes", why, got=f"'geometric' and {heads}", fix="Leave it 'press'.")
        if not options.symmetric and not context.mask.sees_future:
            mask = context.names["mask"]
            yield Unused(
                "symmetric",
                f"is about later tokens, of which mask={mask} shows none",
                got="false",
                fix="Leave it true.",
            )

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        distance = query.position - key.position
        return -self.slope[head] * (distance.abs() if self.symmetric else distance.clamp(min=0))


@POSITIONS.register("t5", also_called=("relative_bias", "bucketed"))
class T5(Position):
    """One learned bias for each head and each bucket of distances (Raffel et al., 2020, JMLR
    21(140), section 2.1).

    One distance to a bucket in the first half of them, then logarithmically wider ones up to
    `longest`, and all farther ones in the last, rounded as in the released code. There is no
    longest text.
    """

    looked_up = learned = True

    def __init__(
        self,
        heads: int,
        stack: str,
        *,
        buckets: int = 32,  # distances that are told apart
        longest: int = 128,  # tokens; what lies farther away shares the last bucket
        bidirectional: (
            bool | None
        ) = None,  # half of the buckets for later tokens, else 0; null: in an encoder
        # a table for each layer, as in UMT5, in place of one for the stack
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
        if options.longest <= options.buckets // 2:
            got = f"{options.longest} and {options.buckets}"
            way = f"Try {options.buckets // 2 + 1}."
            yield Fault("longest", "must be above half the buckets", got, way)

    def bias(self, query, key, head):
        return self.weight[
            self.bucket(query.position - key.position), head
        ]  # (b, 1, q, k), (1, h, 1, 1) -> (b, h, q, k)

    def bucket(self, distance: Tensor) -> Tensor:
        """query - key, in tokens -> a row of the table, of the same shape."""
        count, first = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            count //= 2
            first, distance = (distance < 0).long() * count, distance.abs()
        distance = distance.clamp(min=0)
        alone = count // 2
        far = (
            (distance.clamp(min=1).float() / alone).log()
            / math.log(self.longest / alone)
            * (count - alone)
        )
        return first + torch.where(
            distance < alone, distance, (alone + far.long()).clamp(max=count - 1)
        )
