"""The texts of `xformer explain` and `xformer describe` on how the loss is computed."""

from typing import Any

from tasks.cli.command import format_bytes


def loss_way(item: Any) -> str:
    """Returns how the loss is computed. item: a LossRun."""
    return item.way if item.chunk is None else f"{item.way} of {item.chunk:,} tokens"


def loss_memory(item: Any) -> str:
    """Returns the memory of the logits. item: a LossRun."""
    logits = format_bytes(item.logits)
    if item.chunk is None:
        return f"{logits} of logits and their gradient"
    return f"{logits} of logits; all, with their gradient, need {format_bytes(item.all_logits)}"
