"""Checks of a model's plan: blocks that cannot be composed, and options without effect."""

from xformer_kit.config.faults.component_faults import (
    ComponentAt,
    block_faults,
    embedding_faults,
    extra_faults,
    refusals,
)
from xformer_kit.config.faults.sharing_faults import earlier_keys_faults, mixed_variants_faults
from xformer_kit.config.faults.unused_options import unused_option_faults
from xformer_kit.plan import ModelPlan, Node, StackPlan
from xformer_kit.registry import Fault, Faults


def plan_faults(config: Node, model: ModelPlan, task: bool) -> Faults:
    """Yields all faults of a plan; task: whether the task must be able to train the model."""
    mixed = [fault for stack in model.stacks for fault in mixed_variants_faults(stack)]
    if mixed:
        yield from mixed
        return
    used = {stack.name: {block.variant for block in stack.blocks} for stack in model.stacks}
    refused: dict[ComponentAt, list[Fault]] = {}
    for stack in model.stacks:
        for variant in used[stack.name]:
            refused |= refusals(stack, stack.variants[variant])
    for stack in model.stacks:
        yield from _stack_faults(config, model, stack)
        yield from earlier_keys_faults(stack)
        for block in stack.variants.values():
            if block.variant in used[stack.name]:
                yield from block_faults(config, model, stack, block, task, refused)
            else:
                yield from embedding_faults(block)
    yield from extra_faults(config, model, task)
    yield from unused_option_faults(config, model.stacks, refused)


def _stack_faults(config: Node, model: ModelPlan, stack: StackPlan) -> Faults:
    """Yields the faults of a decoder that does not attend to its encoder, and of variants that no
    layer uses.
    """
    has_cross = any(sub.cross for block in stack.blocks for sub in block.sublayers)
    if stack is model.output and len(model.stacks) > 1 and not has_cross:
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
