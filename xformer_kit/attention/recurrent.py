"""Base class of attentions that keep a state instead of keys and values."""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from xformer_kit.attention.base import Attention
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.recurrence import Recurrence
from xformer_kit.registry import Context, Fault
from xformer_kit.tensors.precision import at_least_fp32, no_autocast

Reason = tuple[str, str]  # why a position cannot be used, and positions that can be


class Recurrent(Attention):
    """Base of attentions that keep a state, to which each token adds and from which it reads
    (`xformer_kit/kernel/recurrence.py`).

    order_free: whether it can also sum over all tokens regardless of their order, for full masks
    and sources.
    chunk: tokens that are computed at once in training.
    """

    computes = "recurrence"
    order_free = False
    kernel: Kernel
    chunk: int

    @classmethod
    def cannot(cls, options, context):
        if context.cross and not cls.order_free:
            yield Fault(
                "",
                f"attn '{context.names['attn']}' passes its state from token to token in their"
                " order, and tokens of another stack have no place in it",
                fix="Choose model.decoder.cross.name=multi_head.",
            )
            return
        if (found := cls.position_reason(context)) is not None:
            reason, others = found
            fix = (
                "model.decoder.cross.position.name=none" if context.cross else f"position={others}"
            )
            yield Fault("", reason, fix=f"Choose {fix}.")
        yield from _mask_faults(cls, context)

    @classmethod
    def position_reason(cls, context: Context) -> Reason | None:
        """Why it cannot be used with its position, and which can be; None if it can."""
        attn, position = context.names["attn"], context.names["position"]
        if not {"bias", "scores"} & set(context.position.enters):
            return None
        reason = (
            f"attn '{attn}' reads a sum over the past and forms no scores, which position"
            f" '{position}' changes one by one"
        )
        rotary = "rotary, " * (context.attn.head_dim % 2 == 0)
        return reason, f"{rotary}learned, sinusoidal or none"

    def run_recurrence(self, r: Recurrence, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns what every token reads (b, h, t, e), and the new state, in at least fp32."""
        r = Recurrence(*(None if x is None else at_least_fp32(x) for x in r))
        with no_autocast(r.q):
            b, h, _, d = r.q.shape
            state = r.q.new_zeros(b, h, d, r.v.shape[-1]) if state is None else state.to(r.q.dtype)
            return self.kernel.recur(r, state, self.chunk)


def _mask_faults(component: type[Recurrent], context: Context) -> Iterator[Fault]:
    """Why it cannot be used with its mask, and masks that can be."""
    attn, mask, band = context.names["attn"], context.names["mask"], context.mask.band
    everything = band == (math.inf, math.inf)
    if (component.order_free and everything) or (band == (math.inf, 0) and not context.cross):
        return
    option = context.mask_path if context.mask_path == "mask" else f"{context.mask_path}.name"
    fix = f"{option}=causal"
    if context.cross:
        rule = f"attn '{attn}' reads one sum over a source, of which mask '{mask}' hides some"
        fix = "model.decoder.cross.mask.name=full"
    elif everything:
        rule = (
            f"attn '{attn}' passes its state from token to token in their order, and mask"
            f" '{mask}' shows later ones"
        )
    else:
        rule = (
            f"attn '{attn}' reads one sum over the whole past, of which mask '{mask}' hides some or"
            " shows more"
        )
        fix += " or full" * (component.order_free and context.stack == "encoder")
    yield Fault("", rule, fix=f"Choose {fix}.")


def real_tokens(tokens: Any) -> Tensor | None:
    """`tokens.real` as (b, 1, t, 1), or None."""
    return None if tokens.real is None else tokens.real[:, None, :, None]
