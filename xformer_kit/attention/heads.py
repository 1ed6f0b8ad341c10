"""The shape of heads: how many channels each has, and which numbers of heads are possible."""

from typing import Any

from torch import Tensor

from xformer_kit.registry import (
    Context,
    Fault,
    alternatives,
    at_least,
    divisors,
    independent_check,
    nearest_values,
)


def head_channels(dim: int, heads: int, head_dim: int | None, parts: int = 1) -> int:
    """Returns the channels of a head: `head_dim`, or dim / heads / parts. parts: queries of each
    head.
    """
    return head_dim or dim // max(heads, 1) // parts


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(b, t, h * d) -> (b, h, t, d)."""
    b, t = x.shape[:2]
    if t == 1:  # a token in generation: one operation instead of two
        return x.view(b, -1, 1, head_dim)
    return x.view(b, t, -1, head_dim).transpose(1, 2)  # `unflatten` takes 3 us more


def join_heads(x: Tensor) -> Tensor:
    """(b, h, t, d) -> (b, t, h * d)."""
    b, _, t, _ = x.shape
    return x.reshape(b, 1, -1) if t == 1 else x.transpose(1, 2).flatten(2)


@independent_check
def check_heads(options: Any, context: Context):
    """Yields faults of heads, kv_heads and head_dim that do not fit each other or model.dim."""
    yield from at_least(options, "channel", head_dim=1)
    heads, kv = 1 if options.heads is None else options.heads, options.kv_heads
    if heads < 1:
        yield Fault("heads", "must be at least 1", got=heads)
        return
    if options.head_dim is None and context.dim and context.dim % heads:
        # Positions that rotate need an even head_dim.
        even = [count for count in divisors(context.dim) if context.dim // count % 2 == 0]
        near = max(1, round(context.dim / heads / 2)) * heads * 2
        fix = f"Try {nearest_values(heads, even)}" if even else f"Try model.dim={near}"
        got = f"{heads} and {context.dim}"
        fix = f"{fix}, or set attn.head_dim."
        yield Fault("heads", "must divide model.dim", got, fix)
    if kv is not None and (kv < 1 or heads % kv):
        yield Fault(
            "kv_heads",
            "must divide attn.heads",
            got=f"{kv} and {heads}",
            fix=f"Try {alternatives(divisors(heads))}.",
        )
