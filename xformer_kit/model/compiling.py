"""Compile a model block by block: layers of one kind share one graph, and a change elsewhere
recompiles nothing.
"""

from typing import Any

import torch
from torch import nn

from xformer_kit.model.stack import Stack

# Training, validation, prompt and decoding, each with padding and without, and all of it twice
# where sizes vary.
GRAPHS = 16  # graphs that one kind of block may need


def graph_kinds(stack: Stack) -> int:
    """The number of kinds of layers that need a graph each: with a placement whose state grows, no
    two layers have states of one length.
    """
    return stack.kinds if isinstance(stack.streams, int) else len(stack.order)


def compile_blocks(model: nn.Module, **options: Any) -> None:
    """Compile every block in place; `options` are torch.compile's. Parameters keep their names.

    Torch counts recompilations per function, and all blocks are one function: its limit, meant for
    one kind of block, is raised to what the kinds of this model need. Beyond it torch goes on
    uncompiled, or fails with `fullgraph`.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, GRAPHS * sum(map(graph_kinds, stacks)))
    for stack in stacks:
        for block in stack.named_blocks.values():
            block.compile(**options)
