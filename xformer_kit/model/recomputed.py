"""Activation checkpointing, model.checkpoint_activations: a block keeps its input, and computes its
activations again in the backward pass (Chen et al., 2016, arXiv:1604.06174, section 3).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from xformer_kit.model.block import Block

aten = torch.ops.aten
# Operations whose outputs `selective` keeps: products of matrices, and fused attentions.
KEPT = {
    *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
}


def checkpoint_activations(model: nn.Module, which: str | int) -> None:
    """Sets which blocks compute their activations again: none, block (each), selective (each, but
    for the outputs of matrix products and of fused attentions), or every n-th block, the first
    included. Random numbers are drawn again as they were, so that dropout has the same mask.
    """
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    every = which if isinstance(which, int) else 1
    options: dict[str, Any] = {"context_fn": _selective} if which == "selective" else {}
    for at, block in enumerate(blocks):
        chosen = which != "none" and at % every == 0
        block.recomputed = partial(checkpoint, use_reentrant=False, **options) if chosen else None


def _selective() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return create_selective_checkpoint_contexts(_policy)


def _policy(context: Any, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    kept = operation in KEPT
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
