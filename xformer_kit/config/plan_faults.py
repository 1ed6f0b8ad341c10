"""Faults of a config that its plan shows: blocks that cannot be composed, and options without
effect.
"""

from xformer_kit.config import sharing, unused
from xformer_kit.config.compatibility import (
    ComponentAt,
    block_faults,
    embedding_faults,
    extra_faults,
    refusals,
)
from xformer_kit.plan import ModelPlan, Node, StackPlan
from xformer_kit.registry import Fault, Faults, independent_check


def plan_faults(config: Node, model: ModelPlan, task: bool) -> Faults:
    """All faults of a plan; task: whether the model must suit its task."""
    found: dict[ComponentAt, list[Fault]] = {}
    shared = [fault for stack in model.stacks for fault in sharing.mixed(stack)]
    if shared:
        yield from shared
        return
    for stack in model.stacks:
        yield from _of_stack(config, model, stack)
        used = {block.variant for block in stack.blocks}
        for block in stack.variants.values():
            if block.variant in used:
                found |= refusals(stack, block)
                yield from block_faults(config, model, stack, block, task, found)
            else:
                yield from embedding_faults(block)
    yield from extra_faults(config, model)
    yield from independent_check(unused.faults)(config, model.stacks, found)


def _of_stack(config: Node, model: ModelPlan, stack: StackPlan) -> Faults:
    """A decoder that does not attend to its encoder, and variants that no layer uses."""
    crosses = any(sub.cross for block in stack.blocks for sub in block.sublayers)
    if stack is model.output and len(model.stacks) > 1 and not crosses:
        yield Fault(
            "model.decoder.layout",
            "no layer attends to the encoder",
            fix="Put 'cross' into it, or leave model.encoder out.",
        )
    for variant in (config["model"][stack.name] or {}).get("variants") or {}:
        if variant not in stack.variants:
            yield Fault(
                f"model.{stack.name}.variants.{variant}",
                "no layer uses it",
                fix=f"Name it in model.{stack.name}.pattern, first or last, or leave it out.",
            )
