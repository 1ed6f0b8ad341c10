"""The contract of an attention and of its cache."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.attention.score import SCORES
from xformer_kit.model.cache import Cache
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import (
    Context,
    Fault,
    Options,
    Registry,
    apart,
    at_least,
    divisors,
    listed,
    near,
)
from xformer_kit.registry.traits import AttentionTraits


class Attention(nn.Module):
    """Base of all attentions.

    no_gradient: parameter names whose gradient is zero by their mathematics, e.g. a key's bias
    under softmax.
    computes: what it asks of its kernel: `scores`; `recurrence`, the steps of a state; or
    `mixture`: it mixes tokens without either, and asks nothing.
    bounded: whether it supports at most model.max_len tokens.
    """

    residual = "o"  # the matrix that writes to the residual stream, if there is one
    no_gradient: tuple[str, ...] = ()
    computes = "scores"
    bounded = False

    def forward(
        self,
        x: Tensor,
        source: Tensor | None,
        context: AttentionContext,
        cache: Cache | None = None,
    ) -> Tensor:
        """x (b, t, dim) -> (b, t, dim). Looks at x itself, and appends to `cache`; or looks at
        `source` (b, s, dim), of which a cache that is not empty holds all that is needed, from the
        first call on.
        """
        raise NotImplementedError

    def queries_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> the queries of these rows that a position sees, unrotated, (b, heads, n,
        head_dim): a position's `scores` may send a table of its own through them.
        """
        raise NotImplementedError

    def keys_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> their keys, (b, kv_heads, n, head_dim)."""
        raise NotImplementedError

    def cache(self, rows: int, length: int, context: AttentionContext | None = None) -> Cache:
        """An empty cache for `rows` sequences of at most `length` tokens, on the weights' device,
        and in their dtype until it is given another.
        """
        raise NotImplementedError

    def weighed(self, calls: Sequence[Tensor], probed: Callable[[int], Tensor]) -> Tensor | None:
        """The weights (b, h, t, s) with which values were summed in a forward pass, for inspection;
        None where there are none.

        `calls` are the weights of each call of its kernel. `probed(width)` finds those that no
        kernel knows, where the sums of `width` channels in each head that `o` reads are linear in
        what `v` projects.
        """
        return calls[0] if len(calls) == 1 else None

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why it cannot be composed with its block, and options without effect."""
        yield from ()

    @classmethod
    def traits(cls, options: dict[str, Any], dim: int) -> AttentionTraits:
        """What other components need to know of it with these options."""
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
        score = SCORES.complete(score)
        component = SCORES[score["name"]]
        return replace(
            traits,
            score=component.beyond(score),
            pointwise=component.pointwise(score),
            signed=component.signed(score),
            across={"score": (heads, 0)} if component.across else {},
        )


ATTENTIONS = Registry(
    "attn", given=("dim", "depth", "layers", "norm", "kernel", "max_len"), base=Attention
)


@apart
def check_heads(options: Any, context: Context):
    """Sentences for heads, kv_heads and head_dim that do not fit each other or model.dim."""
    yield from at_least(options, "channel", head_dim=1)
    heads, kv, head_dim = (
        1 if options.heads is None else options.heads,
        options.kv_heads,
        options.head_dim,
    )
    if heads < 1:
        yield Fault("heads", "must be at least 1", got=heads)
        return
    if head_dim is None and context.dim and context.dim % heads:
        yield Fault(
            "heads",
            "must divide model.dim",
            got=f"{heads} and {context.dim}",
            fix=f"Try {near(heads, divisors(context.dim))}, or set attn.head_dim.",
        )
    if kv is not None and (kv < 1 or heads % kv):
        yield Fault(
            "kv_heads",
            "must divide attn.heads",
            got=f"{kv} and {heads}",
            fix=f"Try {listed(divisors(heads))}.",
        )


def channels(width: int, count: int) -> int:
    """`count` more channels beside `width`, or a few more: fused kernels want multiples of 8."""
    return count + (-count % 8 if width % 8 == 0 else 0)


def device_and_dtype(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    parameter = next(module.parameters())
    return parameter.device, parameter.dtype
