"""Tensors that attentions pass to those of later layers, e.g. the values of the first layer."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from xformer_kit.plan.block_plan import BlockPlan, SublayerPlan
from xformer_kit.plan.model_plan import StackPlan

Key = tuple[str, str]  # variant, name of the sublayer


def with_pairs(plan: StackPlan) -> StackPlan:
    """Returns the plan with `Context.paired`: the names of the tensors that each attention passes
    to a later layer that uses them, or uses from an earlier one.

    They are in the trait `across` of an attention: name -> (a key, equal for the layers that share
    the tensor, the first layer that uses it).
    """
    paired = _paired(plan)

    def completed(block: BlockPlan, sub: SublayerPlan) -> SublayerPlan:
        names = frozenset(paired.get((block.variant, sub.name), ()))
        return replace(sub, context=replace(sub.context, paired=names))

    def completed_block(block: BlockPlan) -> BlockPlan:
        groups = (tuple(completed(block, sub) for sub in group) for group in block.groups)
        return replace(block, groups=tuple(groups))

    if not any(paired.values()):
        return plan
    variants = {name: completed_block(block) for name, block in plan.variants.items()}
    blocks = tuple(variants[block.variant] for block in plan.blocks)
    return replace(plan, variants=variants, blocks=blocks)


def _paired(plan: StackPlan) -> dict[Key, set[str]]:
    """Attention -> the names of the tensors that it passes to a later layer or uses."""
    paired: dict[Key, set[str]] = defaultdict(set)
    # (name, key, cross) -> earlier attentions with the tensor
    providers: dict[Any, set[Key]] = defaultdict(set)
    first_layers: dict[int, int] = {}  # block -> the first layer that calls it
    for layer, (block, index) in enumerate(zip(plan.blocks, plan.calls, strict=True)):
        depth = first_layers.setdefault(index, layer)
        for sub in block.sublayers:
            if sub.kind != "attn":
                continue
            key = block.variant, sub.name
            for name, (common, first) in sub.context.attn.across.items():
                earlier = providers[name, common, sub.cross]
                if earlier and depth >= first:
                    for attention in (*earlier, key):
                        paired[attention].add(name)
                earlier.add(key)
    return paired
