"""The base class of attentions, and their registry."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.model.cache import Cache
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import (
    Context,
    Fault,
    Options,
    Registry,
    alternatives,
    at_least,
    divisors,
    independent_check,
    nearest_values,
)
from xformer_kit.registry.traits import AttentionTraits
from xformer_kit.tensors import Statement, hidden


class Attention(nn.Module):
    """Base of all attentions.

    parameter_info: descriptions of its parameters, see xformer_kit/tensors/parameters.py.
    computes: what it needs of its kernel: `scores`; `recurrence`, the steps of a state; or
    `mixture`: it mixes tokens without either.
    bounded: whether it supports at most model.max_len tokens.
    """

    computes = "scores"
    bounded = False

    parameter_info: Mapping[str, Statement] = {"v": hidden(values=True), "o": hidden(writes=True)}

    def forward(
        self,
        x: Tensor,
        source: Tensor | None,
        context: AttentionContext,
        cache: Cache | None = None,
    ) -> Tensor:
        """Returns the output (b, t, dim) for queries from x (b, t, dim).

        Without `source`, keys and values are those in `cache`, followed by those of x, which are
        appended to it. With `source` (b, s, dim) they are the source's: the first call stores them
        in `cache`, later calls read them there.
        """
        raise NotImplementedError

    def queries_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> their queries before rotation, (b, heads, n, head_dim). A position's
        `scores` may apply it to a table of its own.
        """
        raise NotImplementedError

    def keys_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> their keys before rotation, (b, kv_heads, n, head_dim)."""
        raise NotImplementedError

    def cache(self, rows: int, length: int, context: AttentionContext | None = None) -> Cache:
        """Returns an empty cache for `rows` sequences of at most `length` tokens, with the weights'
        device and dtype. The first tensors that are appended may change the dtype.
        """
        raise NotImplementedError

    def attention_weights(
        self, calls: Sequence[Tensor], probe: Callable[[int], Tensor]
    ) -> Tensor | None:
        """The attention weights (b, h, t, s) of a forward pass, for plots; None if it has none.

        calls: the weights of each call of its kernel.
        probe: probe(width) computes the weights if no kernel does; the input of `o`, `width`
        channels per head, must be linear in the output of `v`.
        """
        return calls[0] if len(calls) == 1 else None

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Yields why it cannot be composed with its block, and options without effect."""
        yield from ()

    @classmethod
    def traits(cls, options: dict[str, Any], dim: int) -> AttentionTraits:
        """The properties that other components may depend on, with these options."""
        heads = options.get("heads") or 1
        head_dim = options.get("head_dim") or dim // heads
        kv_heads = options.get("kv_heads") or heads
        traits = AttentionTraits(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=options.get("v_head_dim") or head_dim,
            width=head_dim,
            computes=cls.computes,
            projects=cls.queries_of is not Attention.queries_of,
        )
        if (score := options.get("score")) is None:
            return traits
        component = score.component
        return replace(
            traits,
            score=component.describe(score),
            pointwise=component.pointwise(score),
            signed=component.signed(score),
            across={"score": (heads, 0)} if component.across else {},
        )


ATTENTIONS = Registry(
    "attn", caller_arguments=("dim", "depth", "layers", "norm", "kernel", "max_len"), base=Attention
)


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


def channels(width: int, count: int) -> int:
    """The number of channels to add to `width`: at least `count`, such that the sum is a multiple
    of 8, which fused kernels need, if `width` is.
    """
    return count + (-count % 8 if width % 8 == 0 else 0)


def device_and_dtype(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Those of a module's first parameter."""
    parameter = next(module.parameters())
    return parameter.device, parameter.dtype
