"""Tensors that attentions pass to those of later layers, e.g. the scores of the layer before."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from xformer_kit.plan.block_plan import BlockPlan, SublayerPlan
from xformer_kit.plan.model_plan import StackPlan

AttentionKey = tuple[str, str]  # variant, name of the sublayer


def with_exchanged_tensors(plan: StackPlan) -> StackPlan:
    """Returns the plan with `Context.exchanged_tensors`: the names of the tensors that each
    attention passes to a later layer that uses them, or uses from an earlier one.
    """
    exchanged = _exchanged_tensors(plan)
    if not exchanged:
        return plan

    def completed(block: BlockPlan, sub: SublayerPlan) -> SublayerPlan:
        names = frozenset(exchanged.get((block.variant, sub.name), ()))
        return replace(sub, context=replace(sub.context, exchanged_tensors=names))

    def completed_block(block: BlockPlan) -> BlockPlan:
        groups = (tuple(completed(block, sub) for sub in group) for group in block.groups)
        return replace(block, groups=tuple(groups))

    variants = {name: completed_block(block) for name, block in plan.variants.items()}
    blocks = tuple(variants[block.variant] for block in plan.blocks)
    return replace(plan, variants=variants, blocks=blocks)


def _exchanged_tensors(plan: StackPlan) -> dict[AttentionKey, set[str]]:
    """Attention -> the names of its tensors (trait `cross_layer`) that have a provider in an
    earlier call and a user in a later one.
    """
    exchanged: dict[AttentionKey, set[str]] = defaultdict(set)
    # tensor -> the attentions that provide it, of the calls so far
    providers: dict[Any, set[AttentionKey]] = defaultdict(set)
    for block in plan.blocks:  # in the order of the layers
        for sub in block.sublayers:
            if sub.kind != "attn":
                continue
            user = block.variant, sub.name
            for name, shape in sub.context.attn.cross_layer.items():
                earlier = providers[name, shape, sub.cross]
                if earlier:
                    for attention in (*earlier, user):
                        exchanged[attention].add(name)
                earlier.add(user)  # which provides its own to later layers
    return exchanged
