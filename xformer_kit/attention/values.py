"""What is summed of values, and what is left of the sum?

Values are a part of an attention: attn.values=laser, or attn.values.name=orthogonal
attn.values.over=all.

residual: values are a v_1 + b v with the v_1 of the stack's first such layer, a = b = 1/2 or
learned from there (Zhou et al., 2024, arXiv:2410.17897), or b = 1 - a = sigmoid(x W + c) of the
token, for each head (`token`).
norm_over: values, mixed or not, have a norm, as queries and keys may have one.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xformer_kit.attention.qk_norm import normed
from xformer_kit.kernel.reference import spread
from xformer_kit.model.tokens import View
from xformer_kit.registry import Context, Fault, Options, Registry, Unused, above

Attend = Callable[[Tensor], Tensor]  # values (b, kv, s, e) -> their weighted sums (b, h, t, e)
Over = Literal["none", "head", "each_head", "projection"]
Residual = Literal["none", "fixed", "learned", "token"]
Norm = Callable[[int], nn.Module]


class Values(nn.Module):
    """Base of all: `made` are values as a cache keeps them; `forward` sums those, and may change
    them before and the sums behind.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        norm: Norm,
        kv_heads: int,
        v_head_dim: int,
        over: Over,
        residual: Residual,
    ):
        super().__init__()
        self.norm = None if over == "none" else normed(over, norm, kv_heads, v_head_dim)
        self.shares = residual != "none"
        self.mix = None
        if depth:  # the first layer has nothing to mix in
            self.mix = mixed_in(residual, dim, kv_heads)

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why its mathematics is undefined in a composition, and options without effect."""
        if options.norm_over != "none" and not context.norm.normalises:
            yield Fault(
                "norm_over",
                f"takes the norm of {context.path}, and '{context.names['norm']}' does nothing",
                fix="Choose norm=rms or norm=layer there, or attn.values.norm_over=none.",
            )
        if options.residual != "none" and "values" not in context.paired:
            one = context.blocks == 1
            yield Unused(
                "residual",
                "mixes values of the first such layer into those of later layers with as many heads"
                " and channels and weights of their own, and there is none",
                got=f"'{options.residual}'",
                fix=(
                    "Try model.layers=2 model.unique_layers=null, or none."
                    if one
                    else "Set it to none."
                ),
            )

    def made(self, v: Tensor, given: Tensor, view: View) -> Tensor:
        """v (b, kv, t, e) as projected from given (b, t, dim) -> with those of the first layer,
        which finds none and leaves its own, of the source and of each shape; then normed.
        """
        if self.shares:
            first = view.memo.setdefault(
                f"values {tuple(v.shape[1::2])} {'source' * view.cross}", v
            )
            if isinstance(self.mix, nn.Linear):
                v = torch.lerp(
                    first, v, self.mix(given).sigmoid().mT[..., None]
                )  # (b, t, kv) -> (b, kv, t, 1)
            elif self.mix is not None:
                v = self.mix[0] * first + self.mix[1] * v
        return v if self.norm is None else self.norm(v)

    def forward(self, attend: Attend, v: Tensor, own: Tensor) -> Tensor:
        """v (b, kv, s, e), those that may be seen; own (b, kv, t, e), those of the tokens that look
        -> (b, h, t, e).
        """
        return attend(v)


def mixed_in(how: Residual, dim: int, kv_heads: int) -> Any:
    """What values of the first layer are mixed in by: two numbers, a map of the token, or None."""
    if how == "token":
        return nn.Linear(dim, kv_heads)
    return {"fixed": (0.5, 0.5), "learned": nn.Parameter(torch.full((2,), 0.5))}.get(how)


VALUES = Registry(
    "value",
    given=("dim", "depth", "norm", "kv_heads", "v_head_dim"),
    base=Values,
    group="attn.values",
)


@VALUES.register("plain")
class Plain(Values):
    """The weighted sum of values (Vaswani et al., 2017, arXiv:1706.03762, eq. 1)."""

    def __init__(
        self,
        dim: int,
        depth: int,
        norm: Norm,
        kv_heads: int,
        v_head_dim: int,
        *,
        # what a norm of values is over; each_head also has weights of each
        norm_over: Over = "none",
        residual: Residual = "none",  # how values of the first layer are mixed in
    ):
        super().__init__(dim, depth, norm, kv_heads, v_head_dim, norm_over, residual)

    @property
    def bare(self) -> bool:
        """Whether values are summed as projected."""
        return self.norm is None and not self.shares


@VALUES.register("laser", also_called=("log_sum_exp",))
class Laser(Values):
    """log(sum_j a_j exp(v_j)) in each channel, with weights a_j (LASER: Duvvuri and Dhillon, 2024,
    arXiv:2411.03493). What the gradient of a weight is does not vanish where weights are near 0 or
    1.

    It is m + log(sum_j a_j exp(v_j - m)) with the largest v_j of a channel as m, which is no
    function of a weight (the paper's log-weighted-sum-exp trick). A row without any weight is 0.
    """

    # Paper: v_j as projected.   Here: cap * tanh(v_j / cap) unless cap=null. m is the largest of
    # all values that are held, also of those that a mask hides from a query; a bound on values
    # keeps what it does see from vanishing beside them.

    def __init__(
        self,
        dim: int,
        depth: int,
        norm: Norm,
        kv_heads: int,
        v_head_dim: int,
        *,
        cap: (
            float | None
        ) = 15.0,  # values stay below it, and above minus it; null is no bound; in fp16 at most 8
        # what a norm of values is over; each_head also has weights of each
        norm_over: Over = "none",
        residual: Residual = "none",  # how values of the first layer are mixed in
    ):
        super().__init__(dim, depth, norm, kv_heads, v_head_dim, norm_over, residual)
        self.cap = cap

    @classmethod
    def check(cls, options, context):
        yield from above(options, "null is no bound.", cap=0)

    @classmethod
    def cannot(cls, options, context):
        if context.attn.signed:
            score = context.attn.score
            yield Fault(
                "",
                "'laser' takes the logarithm of a sum with weights, of which attn.score"
                f" '{score}' may make some negative",
                fix="Choose attn.values=plain, or attn.score=softmax.",
            )
            return
        yield from super().cannot(options, context)

    def forward(self, attend, v, own):
        if self.cap is not None:
            v = self.cap * (v / self.cap).tanh()
        top = v.detach().amax(2, keepdim=True)  # (b, kv, 1, e)
        out = attend((v - top).exp().to(v.dtype))
        nothing = out <= 0
        found = out.masked_fill(nothing, 1).log() + spread(top, out.shape[1])
        return found.masked_fill(nothing, 0).to(out.dtype)


@VALUES.register("orthogonal", also_called=("exclusive", "xsa", "belief"))
class Orthogonal(Values):
    """o - <o, u> u with u = v_i / |v_i|, the direction of the token's own value: what it knows of
    itself stays in the residual stream (exclusive self attention: Zhai, 2026, arXiv:2603.09078;
    over all heads also in "belief attention", openreview.net/forum?id=Ard2QzPAUK).
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        norm: Norm,
        kv_heads: int,
        v_head_dim: int,
        *,
        over: Literal[
            "head", "all"
        ] = "head",  # whether directions are those of a head, or of all heads in a row
        # what a norm of values is over; each_head also has weights of each
        norm_over: Over = "none",
        residual: Residual = "none",  # how values of the first layer are mixed in
    ):
        super().__init__(dim, depth, norm, kv_heads, v_head_dim, norm_over, residual)
        self.whole = over == "all"

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "'orthogonal' takes the direction of a token's own value away, and a token"
                " that looks at another stack has no value there",
                fix=f"Set {context.path}.cross.values=plain.",
            )
            return
        yield from super().cannot(options, context)
        if options.over == "all" and context.attn.heads == 1:
            yield Unused(
                "over",
                "with attn.heads=1 the direction of all heads in a row is that of the one",
                got="'all'",
                fix="Set it to head.",
            )

    def forward(self, attend, v, own):
        out = attend(v)
        own = spread(own, out.shape[1])
        axes = (1, 3) if self.whole else 3  # (b, h, t, e)
        unit = own / own.square().sum(axes, keepdim=True).sqrt().clamp(min=1e-12)
        return out - (out * unit).sum(axes, keepdim=True) * unit
