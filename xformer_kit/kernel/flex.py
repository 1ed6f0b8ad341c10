"""FlexAttention: mask and bias as functions of one pair of tokens, which are compiled into one
fused kernel.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from xformer_kit.kernel.base import KERNELS, Explanation, Kernel
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.registry import Fault, config_error

Pair = Callable[
    [Tensor, Tensor, Tensor, Tensor], Tensor
]  # (row, head, query, key), all numbers -> what is seen
BLOCK_MASKS = 64  # of masks and lengths, kept for the next forward


class Asked(NamedTuple):
    """How FlexAttention is called: which blocks of pairs it computes, and whether scores have a
    bias.
    """

    blocks: Any  # a BlockMask, or None: all
    biased: bool


@KERNELS.register("flex", also_called=("flex_attention",))
class Flex(Kernel):
    """The same equation where mask and bias are functions of a pair of tokens, and blocks that a
    mask hides are left out (Dong et al., 2024, arXiv:2412.05496). No table of all pairs is held:
    memory is linear in the text for a window, and for documents.

    On CUDA it is compiled, and kernel=auto takes it where sdpa would need a table. On a CPU torch
    computes it step by step, and no gradients.
    """

    speed = 0.5
    trains_on = ("cuda",)

    @classmethod
    def cannot(cls, options, context):
        names, attn, position = context.names, context.attn, context.position
        if "scores" in position.enters:
            yield Fault(
                "",
                f"position '{names['position']}' computes scores of its own, and flex computes them"
                " itself",
            )
            return
        if attn.score is not None and not attn.pointwise:
            yield Fault(
                "",
                f"attn.score is {attn.score}, and flex computes softmax of scores that are changed"
                " one by one",
            )
            return
        if context.options["attn"].get("dropout"):
            yield Fault(
                "",
                f"attn.dropout is {context.options['attn']['dropout']}, and flex drops no weights",
            )
            return
        if "bias" in position.enters and position.learned:
            yield Fault(
                "",
                f"position '{names['position']}' learns its bias, whose gradient flex adds up in no"
                " fixed order, so that a run would not resume bit for bit",
            )
            return
        width = min(attn.head_dim, context.options["attn"].get("v_head_dim") or attn.head_dim)
        if context.device == "cuda" and width < 16:
            yield Fault("", f"a head has {width} channels, and flex needs 16 on CUDA")
            return

    def prepare(self, context, heads, biased, dtype):
        device, bare = (
            context.query.slot.device,
            context._replace(prepared=None, position=None, memo=None),
        )
        lengths = context.query.length, context.key.length
        if (
            context.covers(context.mask.band())
            and context.key.real is None
            and context.key.document is None
        ):
            return Asked(None, biased)
        per_head = heads if context.mask.per_head else None
        if alone(context):  # the mask and the lengths say all
            return Asked(_kept(context.mask, per_head, *lengths, str(device)), biased)
        rows = max(
            field.shape[0]
            for tokens in (context.query, context.key)
            for field in tokens
            if field is not None
        )
        queries, keys = lengths
        return Asked(
            _block_mask(
                pairs(bare), rows if rows > 1 else None, per_head, queries, keys, str(device)
            ),
            biased,
        )

    def explain(self, prepared, queries, keys, dropout):
        left = (
            "" if prepared.blocks is None else ", without the blocks of pairs that the mask hides"
        )
        return Explanation(f"with mask and bias as functions of a pair of tokens{left}")

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, weigh=None):
        if q.device.type == "cpu":
            if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
                raise config_error(
                    "kernel",
                    "'flex' computes no gradients on a CPU",
                    fix="Run it under torch.no_grad(), or choose kernel=auto.",
                )
            q, k, v = q.detach(), k.detach(), v.detach()
        run, options = (
            _attention(q.device.type),
            {"scale": scale, "enable_gqa": k.shape[1] != q.shape[1]},
        )
        changed = change(context, weigh) if context.prepared.biased or weigh is not None else None
        return run(q, k, v, score_mod=changed, block_mask=context.prepared.blocks, **options)


def alone(context: AttentionContext) -> bool:
    """Whether what is seen follows from the mask and the number of tokens: nothing is padded,
    packed or a prefix, and tokens stand in their places from the first on.
    """
    fields = (context.query.prefix, context.key.prefix, context.key.real, context.key.document)
    ordered = (
        context.query.position is context.query.slot and context.key.position is context.key.slot
    )
    return (
        ordered
        and not context.cross
        and context.query.length == context.key.length
        and not any(f is not None for f in fields)
    )


def pairs(context: AttentionContext) -> Pair:
    """Whether a query sees a key: mask, padding and documents."""
    mask, query, key = context.mask, context.query, context.key
    apart = query.document is not None and key.document is not None

    def sees(row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        one, other = _at(query, row, i), _at(key, row, j)
        seen = mask.allows(one, other, head)
        if other.real is not None:
            seen = seen & other.real
        return seen & (one.document == other.document) if apart else seen

    return sees


def change(context: AttentionContext, weigh: Any) -> Callable[..., Tensor]:
    """What becomes of a score: the position's bias is added, and what comes before the softmax is
    done.
    """
    position, query, key, biased = (
        context.position,
        context.query,
        context.key,
        context.prepared.biased,
    )

    def changed(score: Tensor, row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if biased:
            added = position.bias(_at(query, row, i), _at(key, row, j), head)
            score = score + added.to(score.dtype)
        return score if weigh is None else weigh.before(score)

    return changed


def _at(tokens: Tokens, row: Tensor, place: Tensor) -> Tokens:
    """One token, every field a number."""
    return tokens.map(lambda field: field[row if field.shape[0] > 1 else 0, place])


@lru_cache(BLOCK_MASKS)
def _kept(mask: Any, heads: int | None, queries: int, keys: int, device: str) -> Any:
    slot = torch.arange(keys, device=device)[None]
    tokens = Tokens(slot=slot, position=slot)
    sees = pairs(AttentionContext(tokens, tokens, mask, None))
    return _block_mask(sees, None, heads, queries, keys, device)


def _block_mask(
    sees: Pair, rows: int | None, heads: int | None, queries: int, keys: int, device: str
) -> Any:
    """On CUDA compiled, so that the pairs are never laid out."""
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(
        sees, rows, heads, queries, keys, device=device, _compile=device.startswith("cuda")
    )


@cache
def _attention(device: str) -> Callable[..., Any]:
    """Torch's function as it runs on a kind of device. Compiled, lengths are fixed in the first
    graph and free from the second on, so that texts of any length take two.
    """
    from torch.nn.attention import flex_attention as module

    if device != "cpu":
        compiled: Any = torch.compile(module.flex_attention)
        return compiled

    def step_by_step(*args: Any, **options: Any) -> Any:
        # Torch traces each function of a pair with its compiler first, for the gradient that there
        # is none of on a CPU.
        with patch.object(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
            return module.flex_attention(*args, **options)

    return step_by_step


class Either(Kernel):
    """What kernel=auto means where there is a CUDA device: `usual`, or `flex` where that would need
    a table on CUDA.
    """

    def __init__(self, usual: Any, flex: Flex):
        self.usual = usual
        self.flex = flex

    def prepare(self, context, heads, biased, dtype):
        able = (
            context.query.slot.device.type == "cuda"
            and dtype != torch.float64
            and context.query.length > 1
        )
        kernel = self.flex if able and self.usual.tabled(context, biased) else self.usual
        return kernel.prepare(context, heads, biased, dtype)

    def explain(self, prepared, queries, keys, dropout):
        if not isinstance(prepared, Asked):
            return self.usual.explain(prepared, queries, keys, dropout)
        how, kept = self.flex.explain(prepared, queries, keys, dropout)
        return Explanation(f"by flex, {how}", kept)

    def __call__(self, q, k, v, context, *args, **options):
        kernel = self.flex if isinstance(context.prepared, Asked) else self.usual
        return kernel(q, k, v, context, *args, **options)
