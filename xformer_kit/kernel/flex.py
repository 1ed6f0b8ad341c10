"""The flex kernel: FlexAttention compiles mask and bias, functions of a query and a key, into one
fused kernel.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from xformer_kit.kernel.base import KERNELS, Kernel, KernelExplanation
from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import AttentionContext, Tokens
from xformer_kit.tensors.uncompiled import is_uncompiled

# (row, head, index of the query, index of the key) -> whether the query may attend to the key
MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
BLOCK_MASKS = 64  # block masks in the cache


class FlexCall(NamedTuple):
    """How FlexAttention is called."""

    blocks: Any  # a BlockMask; None: no mask
    biased: bool  # whether scores have a bias


@KERNELS.register("flex", also_called=("flex_attention",))
class Flex(Kernel):
    """softmax(mask(q k^T * scale + bias)) v with mask and bias as functions of a query and a key;
    masked blocks are skipped (Dong et al., 2024, arXiv:2412.05496). Memory is linear in the length
    for a window and for documents.

    On CUDA it is compiled, and kernel=auto uses it where sdpa would need a mask tensor. On a CPU
    torch computes it step by step, without gradients.
    """

    speed = 0.5
    trains_on = ("cuda",)

    @classmethod
    def unsupported(cls, context):
        names, attn, position = context.names, context.attn, context.position
        options = context.options["attn"]
        if "scores" in position.enters:
            return (
                f"position '{names['position']}' computes scores of its own, and flex computes them"
                " itself"
            )
        if attn.score is not None and not attn.pointwise:
            return (
                f"attn.score is {attn.score}, and flex computes softmax of scores that are changed"
                " one by one"
            )
        if dropout := options.get("dropout"):
            return f"attn.dropout is {dropout}, and flex drops no weights"
        if "bias" in position.enters and position.learned:
            return (
                f"position '{names['position']}' learns its bias, whose gradient flex adds up in no"
                " fixed order, so that a run would not resume bit for bit"
            )
        width = min(attn.head_dim, options.get("v_head_dim") or attn.head_dim)
        if context.device == "cuda" and width < 16:
            return f"a head has {width} channels, and flex needs 16 on CUDA"
        return None

    def prepare(self, context, heads, biased, dtype):
        mask, query, key = context.mask, context.query, context.key
        if context.covers(mask.band()) and key.real is None and key.document is None:
            return FlexCall(None, biased)
        per_head = heads if mask.per_head else None
        sizes = per_head, query.length, key.length, str(query.slot.device)
        if is_plain(context):  # the block mask depends only on the mask and the lengths
            return FlexCall(_cached_block_mask(mask, *sizes), biased)
        rows = context.rows if context.rows > 1 else None
        return FlexCall(_block_mask(mask_function(context), rows, *sizes), biased)

    def explain(self, prepared, queries, keys, dropout):
        skipped = (
            "" if prepared.blocks is None else ", without the blocks of pairs that the mask hides"
        )
        return KernelExplanation(f"with mask and bias as functions of a pair of tokens{skipped}")

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        if q.device.type == "cpu":
            if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
                raise config_error(
                    "kernel",
                    "'flex' computes no gradients on a CPU",
                    fix="Run it under torch.no_grad(), or choose kernel=auto.",
                )
            q, k, v = q.detach(), k.detach(), v.detach()
        changes_scores = context.prepared.biased or score_fn is not None
        return _flex_attention(q.device.type)(
            q,
            k,
            v,
            score_mod=score_mod(context, score_fn) if changes_scores else None,
            block_mask=context.prepared.blocks,
            scale=scale,
            enable_gqa=k.shape[1] != q.shape[1],
        )


def is_plain(context: AttentionContext) -> bool:
    """Whether the attention mask depends only on `context.mask` and the number of tokens: no
    padding, documents or prefix, as many queries as keys, and positions equal to slots.
    """
    query, key = context.query, context.key
    return (
        all(tokens.position is tokens.slot for tokens in (query, key))
        and not context.cross
        and query.length == key.length
        and all(field is None for field in (query.prefix, key.prefix, key.real, key.document))
    )


def mask_function(context: AttentionContext) -> MaskFunction:
    """Returns the function of mask, padding and documents; its arguments and result are scalars."""
    mask, query, key = context.mask, context.query, context.key
    compare_documents = query.document is not None and key.document is not None

    def mask_mod(row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        query_token, key_token = _token(query, row, i), _token(key, row, j)
        allowed = mask.allows(query_token, key_token, head)
        if key_token.real is not None:
            allowed = allowed & key_token.real
        if compare_documents:
            allowed = allowed & (query_token.document == key_token.document)
        return allowed

    return mask_mod


def score_mod(context: AttentionContext, score_fn: Any) -> Callable[..., Tensor]:
    """Returns FlexAttention's score_mod: adds the position's bias, applies `score_fn.before`. Its
    arguments and result are scalars.
    """
    position, query, key = context.position, context.query, context.key
    biased = context.prepared.biased

    def changed(score: Tensor, row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if biased:
            added = position.bias(_token(query, row, i), _token(key, row, j), head)
            score = score + added.to(score.dtype)
        return score if score_fn is None else score_fn.before(score)

    return changed


def _token(tokens: Tokens, row: Tensor, index: Tensor) -> Tokens:
    """One token; every field is a scalar."""
    return tokens.map(lambda field: field[row if field.shape[0] > 1 else 0, index])


@lru_cache(BLOCK_MASKS)
def _cached_block_mask(mask: Any, heads: int | None, queries: int, keys: int, device: str) -> Any:
    """The block mask of `mask` without padding and documents."""
    slot = torch.arange(keys, device=device)[None]
    tokens = Tokens(slot=slot, position=slot)
    mask_mod = mask_function(AttentionContext(tokens, tokens, mask, None))
    return _block_mask(mask_mod, None, heads, queries, keys, device)


def _block_mask(
    mask_mod: MaskFunction,
    rows: int | None,
    heads: int | None,
    queries: int,
    keys: int,
    device: str,
) -> Any:
    """Creates a BlockMask of (rows, heads, queries, keys), None for 1; compiled on CUDA, so that no
    tensor of all pairs is built.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    create = torch.compile(create_block_mask) if device.startswith("cuda") else create_block_mask
    return create(mask_mod, rows, heads, queries, keys, device)


def _flex_attention(device: str) -> Callable[..., Any]:
    """FlexAttention for a device type: itself within a compiled block, whose graph it becomes a
    part of, else compiled by itself. A call of torch.compile within a compiled block would break
    its graph, since Lightning replaces torch.compile by a function that is not traced.
    """
    if torch.compiler.is_compiling():
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention
    return _outside_a_graph(device)


@cache
def _outside_a_graph(device: str) -> Callable[..., Any]:
    """FlexAttention for a device type, outside a compiled block. Compiled, lengths are static in
    the first graph and dynamic from the second on, so that two graphs serve all lengths.
    """
    from torch.nn.attention import flex_attention as module

    if device != "cpu":
        return torch.compile(module.flex_attention)

    def step_by_step(*args: Any, **options: Any) -> Any:
        # Without the patch torch would first compile each function for a gradient, which does not
        # exist on a CPU.
        with patch.object(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
            return module.flex_attention(*args, **options)

    return step_by_step


class SDPAOrFlex(Kernel):
    """The kernel of kernel=auto if there is a CUDA device: flex on CUDA where sdpa would need a
    mask or bias tensor, else sdpa. Uncompiled, flex computes all scores, and sdpa is used.
    """

    def __init__(self, sdpa: Any, flex: Flex):
        self.sdpa = sdpa
        self.flex = flex

    def prepare(self, context, heads, biased, dtype):
        supported = (
            context.query.slot.device.type == "cuda"
            and dtype != torch.float64
            and context.query.length > 1
            and not is_uncompiled()
        )
        kernel = self.flex if supported and self.sdpa.needs_table(context, biased) else self.sdpa
        return kernel.prepare(context, heads, biased, dtype)

    def explain(self, prepared, queries, keys, dropout):
        if not isinstance(prepared, FlexCall):
            return self.sdpa.explain(prepared, queries, keys, dropout)
        description, saved_scores = self.flex.explain(prepared, queries, keys, dropout)
        return KernelExplanation(f"by flex, {description}", saved_scores)

    def __call__(self, q, k, v, context, *args, **options):
        kernel = self.flex if isinstance(context.prepared, FlexCall) else self.sdpa
        return kernel(q, k, v, context, *args, **options)
