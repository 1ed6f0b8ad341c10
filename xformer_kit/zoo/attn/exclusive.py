"""Attention without the direction of a token's own value."""

from collections.abc import Callable
from typing import Literal

from torch import nn

from xformer_kit.attention import (
    AS_PROJECTED,
    ATTENTIONS,
    EIGHT_HEADS,
    SOFTMAX,
    Gate,
    HeadShape,
    MultiHead,
    NoGate,
    Projections,
    WeightOptions,
    at_least_fp32,
)
from xformer_kit.kernel import Kernel, expand_heads
from xformer_kit.registry import Fault, Unused

NORMED = ("output", "sandwich", "normformer", "ngpt")  # placements with a norm after a sublayer


@ATTENTIONS.register("exclusive", also_called=("xsa",), similar=("orthogonal", "belief"))
class Exclusive(MultiHead):
    """o - <o, u> u in each head, with the output o of multi_head and u = v_i / |v_i|, the direction
    of the token's own value.

    Information about the token itself remains in the residual stream (exclusive self attention:
    Zhai, 2026, arXiv:2603.09078; over all heads also in "belief attention",
    openreview.net/forum?id=Ard2QzPAUK).
    """

    variants = [{"over": "head"}, {"over": "all", "qk_norm": {"name": "l2", "groups": 2}}]

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        depth: int = 0,
        *,
        shape: HeadShape = EIGHT_HEADS,
        # whether directions are those of each head, or of all heads concatenated
        over: Literal["head", "all"] = "head",
        projections: Projections = AS_PROJECTED,
        gate: Callable[..., Gate] = NoGate,  # factor on the output
        weights: WeightOptions = SOFTMAX,
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            depth,
            shape=shape,
            projections=projections,
            gate=gate,
            weights=weights,
        )
        self.axes: tuple[int, ...] = (1, 3) if over == "all" else (3,)  # of (b, h, t, e)

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "'exclusive' takes the direction of a token's own value away, and a token"
                " that attends to another stack has no value there",
                fix=f"Set {context.path}.name=multi_head.",
            )
            return
        if (placement := context.names["placement"]) in NORMED:
            yield Fault(
                "",
                "'exclusive' returns nearly zeros for a token that sees only itself, and placement"
                f" '{placement}' normalises the output of a sublayer",
                fix="Choose placement=pre.",
            )
        yield from super().cannot(options, context)
        if options.over == "all" and context.attn.heads == 1:
            yield Unused(
                "over",
                "with attn.heads=1 the direction of all heads is that of the one",
                got="'all'",
                fix="Set it to head.",
            )

    def attend(self, q, k, v, context, scores, *score_fn):
        out = super().attend(q, k, v, context, scores, *score_fn)
        own = expand_heads(v[:, :, -q.shape[2] :], out.shape[1])  # values of the queries' tokens
        # Not by a unit vector: for a token that sees only itself the share is exactly 1, and the
        # output zero, which a norm after it would not make of rounding errors.
        wide, own = at_least_fp32(out), at_least_fp32(own)
        share = (wide * own).sum(self.axes, keepdim=True)
        length = own.square().sum(self.axes, keepdim=True).clamp(min=1e-24)
        return (wide - share / length * own).to(out.dtype)
