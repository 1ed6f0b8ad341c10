"""Attention that sums exponentials of values."""

from collections.abc import Callable

from torch import nn

from xformer_kit.attention import (
    AS_PROJECTED,
    ATTENTIONS,
    SOFTMAX,
    AttentionWeights,
    Gate,
    MultiHead,
    NoGate,
    Projections,
)
from xformer_kit.kernel import Kernel, spread
from xformer_kit.registry import Fault, above


@ATTENTIONS.register("laser", also_called=("log_sum_exp",))
class Laser(MultiHead):
    """log(sum_j a_j exp(v_j)) in each channel, with the weights a_j of multi_head (LASER: Duvvuri
    and Dhillon, 2024, arXiv:2411.03493). The gradient of a weight does not vanish if weights are
    near 0 or 1.

    It is m + log(sum_j a_j exp(v_j - m)) with the largest v_j of a channel as m, which is no
    function of a weight (the paper's log-weighted-sum-exp trick). A row without any weight is 0.
    """

    # Paper: v_j as projected.   Here: cap * tanh(v_j / cap) unless cap=null. m is the largest of
    # all values that are held, also of those that a mask hides from a query; a bound on values
    # keeps the values that it sees from vanishing next to them.

    variants = [{"v_head_dim": 7, "qk_norm": "key", "v_norm": "head", "cap": 2.0}]

    def __init__(
        self,
        dim: int,
        norm: Callable[[int], nn.Module],
        kernel: Kernel,
        depth: int = 0,
        *,
        heads: int = 8,  # query heads
        kv_heads: int | None = None,  # key and value heads; null is heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is head_dim
        # values stay below it, and above minus it; null is no bound; in fp16 at most 8
        cap: float | None = 15.0,
        projections: Projections = AS_PROJECTED,
        gate: Callable[..., Gate] = NoGate,  # by what the output is multiplied
        weights: AttentionWeights = SOFTMAX,
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            depth,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            projections=projections,
            gate=gate,
            weights=weights,
        )
        self.cap = cap

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, "null is no bound.", cap=0)

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if context.attn.signed:
            yield Fault(
                "",
                "'laser' takes the logarithm of a sum with weights, of which attn.score"
                f" '{context.attn.score}' may make some negative",
                fix="Choose attn.score=softmax.",
            )

    def attend(self, q, k, v, context, scores, *weigh):
        if self.cap is not None:
            v = self.cap * (v / self.cap).tanh()
        top = v.detach().amax(2, keepdim=True)  # (b, kv, 1, e)
        out = super().attend(q, k, (v - top).exp().to(v.dtype), context, scores, *weigh)
        nothing = out <= 0
        found = out.masked_fill(nothing, 1).log() + spread(top, out.shape[1])
        return found.masked_fill(nothing, 0).to(out.dtype)
