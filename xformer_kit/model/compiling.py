"""Compiles a model block by block: layers of one kind share one graph, and a change outside the
blocks does not recompile them.
"""

from typing import Any

import torch
from torch import nn

from xformer_kit.model.stack import Stack

# Training, validation, prompt and decoding, each with and without padding, and each with fixed and
# with dynamic sizes.
GRAPHS = 16  # largest number of graphs of one kind of block


def graph_kinds(stack: Stack) -> int:
    """The number of kinds of layers, each with its own graph. If the placement's state grows from
    layer to layer, every layer is a kind of its own.
    """
    return stack.num_block_kinds if isinstance(stack.streams, int) else len(stack.block_index)


def compile_blocks(model: nn.Module, **options: Any) -> None:
    """Compiles every block in place; `options` are torch.compile's. Parameter names are unchanged.

    Torch counts recompilations per function, and all blocks share the function Block.forward. Its
    recompile limit is therefore raised to the number of graphs of all kinds of this model: at the
    limit torch runs uncompiled, or raises with `fullgraph`.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, GRAPHS * sum(map(graph_kinds, stacks)))
    for stack in stacks:
        for block in stack.named_blocks.values():
            block.compile(**options)
