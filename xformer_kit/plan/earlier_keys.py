"""Attentions that use the keys and values of an earlier layer (attn.keys=earlier)."""

from collections.abc import Iterator
from typing import NamedTuple

from xformer_kit.plan.block_plan import SublayerPlan
from xformer_kit.plan.model_plan import StackPlan


class AttentionCall(NamedTuple):
    """An attention in one layer."""

    depth: int
    sublayer: SublayerPlan


def earlier_keys(plan: StackPlan) -> Iterator[tuple[AttentionCall, AttentionCall | None]]:
    """Yields each attention without keys of its own, with the last one before it that has its own
    and the same mask, position and kernel; None if there is none.
    """
    latest: dict[int, AttentionCall] = {}  # attention group -> the last with keys of its own
    for depth, block in enumerate(plan.blocks):
        groups = plan.attention.group_of[plan.block_index[depth]]
        for sub in (sub for sub in block.sublayers if sub.kind == "attn"):
            call, group = AttentionCall(depth, sub), groups[sub.name]
            if sub.component.get("keys") == "earlier":
                yield call, latest.get(group)
            else:
                latest[group] = call


def key_exchanges(plan: StackPlan) -> dict[tuple[int, str], str]:
    """(index of a block, attention) -> name under which it passes its keys and values to later
    layers, or takes them. Attentions that exchange none are not in it.
    """
    names: dict[tuple[int, str], str] = {}
    for call, source in earlier_keys(plan):
        group = plan.attention.group_of[plan.block_index[call.depth]][call.sublayer.name]
        for depth, sub in (call, source) if source else (call,):
            names[plan.block_index[depth], sub.name] = f"of group {group}"
    return names
