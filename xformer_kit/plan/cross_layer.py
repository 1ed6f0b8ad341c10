"""Tensors that attentions pass to those of later layers, e.g. the scores of the layer before."""

from collections import Counter
from dataclasses import replace
from typing import Any

from xformer_kit.plan.block_plan import SublayerPlan
from xformer_kit.plan.model_plan import StackPlan


def with_exchanged_tensors(plan: StackPlan) -> StackPlan:
    """Returns the plan with `Context.exchanged_tensors`: the names of an attention's tensors that
    another call of the stack has too, so that the later one uses what the earlier one passes on.
    """
    counts = Counter(
        tensor for block in plan.blocks for sub in block.sublayers for tensor in _tensors(sub)
    )
    if not counts:
        return plan

    def completed(sub: SublayerPlan) -> SublayerPlan:
        names = frozenset(tensor[0] for tensor in _tensors(sub) if counts[tensor] > 1)
        return replace(sub, context=replace(sub.context, exchanged_tensors=names))

    variants = {
        name: replace(block, groups=tuple(tuple(map(completed, group)) for group in block.groups))
        for name, block in plan.variants.items()
    }
    blocks = tuple(variants[block.variant] for block in plan.blocks)
    return replace(plan, variants=variants, blocks=blocks)


def _tensors(sub: SublayerPlan) -> list[tuple[str, Any, bool]]:
    """(name, shape, whether they are of a source) of a sublayer's tensors, trait `cross_layer`."""
    shapes = sub.context.attn.cross_layer if sub.kind == "attn" else {}
    return [(name, shape, sub.cross) for name, shape in shapes.items()]
