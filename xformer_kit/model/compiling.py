"""Compiles a model block by block, and its loss: layers of one kind share one graph, and a change
outside the blocks does not recompile them.
"""

from typing import Any

import torch
from torch import nn

from xformer_kit.model.block import Block
from xformer_kit.model.head import Head
from xformer_kit.model.loss import UNCOMPILED, LossFunctions
from xformer_kit.model.stack import Stack

# Training, validation, prompt and decoding, each with and without padding, and each with fixed and
# with dynamic sizes.
GRAPHS = 16  # largest number of graphs of one kind of block


def graph_kinds(stack: Stack) -> int:
    """The number of kinds of layers, each with its own graph; if the placement's state grows from
    layer to layer, that of all their modules that are compiled.
    """
    parts = max(len(compiled_modules(stack, block)) for block in stack.blocks)
    return stack.num_block_kinds * parts


def compiled_modules(stack: Stack, block: Block) -> list[nn.Module]:
    """The modules of a block that are compiled: the block. If the placement's state grows, its
    sublayers and parts of its placements, since no two layers have inputs of one shape.
    """
    if isinstance(stack.streams, int):
        return [block]
    parts = (
        getattr(placement, name)
        for placement in block.placement.values()
        for name in placement.compiled_parts  # type: ignore[union-attr]
    )
    return [*block.sublayers().values(), *filter(None, parts)]


def compile_blocks(model: nn.Module, **options: Any) -> None:
    """Compiles every block in place, or parts of it (`compiled_modules`), and the loss of the head,
    whose operations on single logits become one kernel. `options` are those of torch.compile.
    Parameter names are unchanged.

    Torch counts recompilations per function, and all blocks share the function Block.forward. Its
    recompile limit is therefore raised to the number of graphs of all kinds of this model: at the
    limit torch runs uncompiled, or raises with `fullgraph`.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, GRAPHS * sum(map(graph_kinds, stacks)))
    for head in (module for module in model.modules() if isinstance(module, Head)):
        head.loss_functions = LossFunctions(
            torch.compile(UNCOMPILED.plain, **options), torch.compile(UNCOMPILED.chunk, **options)
        )
    for stack in stacks:
        for block in stack.named_blocks.values():
            for module in compiled_modules(stack, block):
                module.compile(**options)
