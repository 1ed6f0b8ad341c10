"""The texts of `xformer explain` and `xformer describe` on how the loss is computed."""

from tasks.cli.command import format_bytes
from xformer_kit.inspect.losses import LossRun


def loss_way(item: LossRun) -> str:
    """Returns how the loss is computed."""
    return item.way if item.chunk is None else f"{item.way} of {item.chunk:,} tokens"


def loss_memory(item: LossRun) -> str:
    """Returns the memory of the logits."""
    logits = format_bytes(item.logits)
    if item.chunk is None:
        return f"{logits} of logits and their gradient"
    return f"{logits} of logits; all, with their gradient, need {format_bytes(item.all_logits)}"
