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
from xformer_kit.plan import ModelPlan, Node, StackPlan, stacks
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
    whole = _with_whole_patterns(config, model)
    plans = model.stacks if whole is config else stacks(whole)
    yield from unused_option_faults(whole, plans, refused)


def _with_whole_patterns(config: Node, model: ModelPlan) -> Node:
    """Returns the config with as many layers in each stack as its pattern has. A model of fewer
    layers is a small one of the same architecture, which need not use all its variants.
    """
    for plan in model.stacks:
        stack = config["model"][plan.name] or {}
        layers = len(plan.blocks) // plan.loops
        least = sum(len(stack.get(key) or ()) for key in ("first", "pattern", "last"))
        if stack.get("pattern") and layers < least:
            stack = {**stack, "layers": least}
            config = {**config, "model": {**config["model"], plan.name: stack}}
    return config


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
    node = config["model"][stack.name] or {}
    named = {name for key in ("first", "pattern", "last") for name in node.get(key) or ()}
    for variant in node.get("variants") or {}:
        if variant not in stack.variants and variant not in named:
            yield Fault(
                f"model.{stack.name}.variants.{variant}",
                "no layer uses it",
                fix=f"Name it in model.{stack.name}.pattern, first or last, or leave it out.",
            )
