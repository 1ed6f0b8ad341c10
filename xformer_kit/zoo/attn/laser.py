"""Attention that sums exponentials of values."""

from collections.abc import Callable

import torch
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
)
from xformer_kit.kernel import Kernel, expand_heads
from xformer_kit.registry import Fault, above, config_error

MAX_CAP, MAX_CAP_FP16 = 40.0, 8.0  # exp(-2 cap) is a number above 0


@ATTENTIONS.register("laser", similar=("log_sum_exp",))
class Laser(MultiHead):
    """log(sum_j a_j exp(v_j)) in each channel, with the weights a_j of multi_head (LASER: Duvvuri
    and Dhillon, 2024, arXiv:2411.03493). The gradient of a weight does not vanish if weights are
    near 0 or 1.

    It is m + log(sum_j a_j exp(v_j - m)) with the largest v_j of a channel as m, which is no
    function of a weight (the paper's log-weighted-sum-exp trick). A row without any weight is 0.
    """

    # Paper: v_j as projected.   Here: cap * tanh(v_j / cap). m is the largest of all values in the
    # cache, also of those that a mask hides from a query: without a bound, exponentials of visible
    # values could underflow, and a later token would change the result.

    variants = [{"v_head_dim": 7, "qk_norm": "key", "v_norm": "head", "cap": 2.0}]

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        depth: int = 0,
        *,
        shape: HeadShape = EIGHT_HEADS,
        # bound on the size of values; at most 40, in fp16 8
        cap: float = 15.0,
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
        self.cap = cap

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, cap=0)
        if (options.cap or 0) > MAX_CAP:
            yield Fault("cap", f"must be at most {MAX_CAP:g}", options.cap, "Try 15.")

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if context.precision in ("16-mixed", "16-true") and options.cap > MAX_CAP_FP16:
            rule = f"must be at most {MAX_CAP_FP16:g} with trainer.precision={context.precision}"
            yield Fault("cap", rule, options.cap, "Or set trainer.precision=bf16-mixed.")
        if context.attn.signed:
            yield Fault(
                "",
                "'laser' takes the logarithm of a sum with weights, of which attn.score"
                f" '{context.attn.score}' may make some negative",
                fix="Choose attn.score=softmax.",
            )

    def attend(self, q, k, v, context, scores, *score_fn):
        if v.dtype == torch.float16 and self.cap > MAX_CAP_FP16:
            rule = f"must be at most {MAX_CAP_FP16:g} in fp16"
            raise config_error("attn.cap", rule, self.cap, "Or set trainer.precision=bf16-mixed.")
        v = self.cap * (v / self.cap).tanh()
        top = v.detach().amax(2, keepdim=True)  # (b, kv, 1, e)
        out = super().attend(q, k, (v - top).exp().to(v.dtype), context, scores, *score_fn)
        empty = out <= 0
        logs = out.masked_fill(empty, 1).log() + expand_heads(top, out.shape[1])
        return logs.masked_fill(empty, 0).to(out.dtype)
