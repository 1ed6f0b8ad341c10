"""What attentions give to attentions of later layers, such as the values of the first layer."""

from dataclasses import replace
from typing import Any

from xformer_kit.plan.model_plan import BlockPlan, StackPlan

Key = tuple[str, str]  # variant, name of the sublayer


def with_pairs(plan: StackPlan) -> StackPlan:
    """The plan with `Context.paired`: what each attention gives to a later layer that takes it, or
    takes from an earlier one.

    An attention's trait `across` names it: name -> (what the two must have in common, the first
    layer that takes it).
    """
    paired = _paired(plan)

    def completed(block: BlockPlan) -> BlockPlan:
        groups = tuple(
            tuple(
                replace(
                    sub,
                    context=replace(
                        sub.context,
                        paired=frozenset(paired.get((block.variant, sub.name), ())),
                    ),
                )
                for sub in group
            )
            for group in block.groups
        )
        return replace(block, groups=groups)

    if not any(paired.values()):
        return plan
    variants = {name: completed(block) for name, block in plan.variants.items()}
    blocks = tuple(variants[block.variant] for block in plan.blocks)
    return replace(plan, variants=variants, blocks=blocks)


def _paired(plan: StackPlan) -> dict[Key, set[str]]:
    found: dict[Key, set[str]] = {}
    held: dict[Any, set[Key]] = {}  # what has been given, with whom it is shared -> who gave it
    begun: dict[int, int] = {}  # block -> the first layer that calls it
    for layer, (block, at) in enumerate(zip(plan.blocks, plan.calls, strict=True)):
        depth = begun.setdefault(at, layer)
        for sub in block.sublayers:
            if sub.kind != "attn":
                continue
            key = block.variant, sub.name
            for name, (common, first) in sub.context.attn.across.items():
                before = held.setdefault((name, common, sub.cross), set())
                if before and depth >= first:
                    for one in (*before, key):
                        found.setdefault(one, set()).add(name)
                before.add(key)
    return found
