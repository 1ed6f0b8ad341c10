"""Checks of modules that replace a layer of a stack, or a sublayer of a block."""

import inspect
from typing import TYPE_CHECKING, Any

from torch import nn

from xformer_kit.registry import ConfigError, config_error

if TYPE_CHECKING:
    from xformer_kit.model.block import Block

FFN_CALL = "forward(x, context) and returns (output, report)"
FFN_FIX = "Wrap it in a module whose forward(x, context) returns (module(x), {})."
ATTENTION_CALL = "forward(x, source=, context=, cache=) and returns the output"


def check_sublayer(name: str, module: Any, attention: bool) -> None:
    """Raises ConfigError for a module that cannot be called as the sublayer `name`."""
    if module is None:
        fix = "Leave it out of the layout instead, as in model.decoder.layout=[attn]."
        raise config_error(name, "is a sublayer of the block and cannot be None", fix=fix)
    arguments: tuple[Any, dict[str, Any]] = (None,), dict.fromkeys(("source", "context", "cache"))
    positional, named = arguments if attention else ((None, None), {})
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*positional, **named)
    except TypeError:
        kind = "an attention" if attention else "a feed-forward network"
        raise config_error(
            name,
            f"{kind} is called as {ATTENTION_CALL if attention else FFN_CALL}",
            got=f"{type(module).__name__}.forward({', '.join(signature.parameters)})",
            fix="Derive it from xformer_kit.attention.Attention." if attention else FFN_FIX,
        ) from None


def without_report(name: str, returned: Any) -> ConfigError:
    """Returns the error of a feed-forward network that returns no report."""
    rule = f"a feed-forward network is called as {FFN_CALL}"
    return config_error(name, rule, type(returned).__name__, "Return (output, {}).")


def check_block(index: int, old: "Block", new: Any, others: "tuple[Block, ...]") -> None:
    """Raises ConfigError for a module that cannot replace the block `old` of layer `index`; others:
    the blocks of the stack.
    """
    name = f"layer {index}"
    if not hasattr(new, "attention_group_of"):
        raise config_error(
            name,
            "must be a block, of this model or of one with the same config",
            got=type(new).__name__,
            fix=f"Replace a sublayer instead, as in model.decoder[{index}].ffn = module.",
        )
    if any(new is block for block in others):
        fix = "Give copy.deepcopy(block), or share layers by model.unique_layers."
        raise config_error(name, "the block is another layer already", fix=fix)
    parts = (
        ("attentions and groups of attentions", old.attention_group_of, new.attention_group_of),
        ("cross attentions", list(old.cross_attentions), list(new.cross_attentions)),
        ("extras", sorted(old.extras), sorted(new.extras)),
    )
    for part, ours, theirs in parts:
        if ours != theirs:
            rule = f"must have the {part} of the block that it replaces, {ours}"
            raise config_error(name, rule, got=f"{theirs}")


def replace_block(stack: nn.Module, name: str, old: "Block", new: "Block") -> None:
    """Registers a checked block in the place of `old`, whose extras, which belong to the stack, it
    gets.
    """
    new.extras = old.extras
    new.num_calls = old.num_calls
    setattr(stack, name, new)
