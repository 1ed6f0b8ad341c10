"""The length of a run in optimizer steps, from trainer.max_steps, max_tokens and max_epochs. If
several are set, the smallest counts.
"""

from collections.abc import Mapping
from typing import Any


def step_tokens(data: Mapping[str, Any]) -> int:
    """Returns the tokens of an optimizer step, over all devices and micro-batches:
    data.batch_size * data.seq_len, or data.batch_tokens. Padding counts.
    """
    tokens = data.get("batch_tokens")
    return data["batch_size"] * data["seq_len"] if tokens is None else tokens


def known_steps(config: Mapping[str, Any]) -> int | None:
    """Returns the optimizer steps of a config's run that are known without its data: the smaller of
    max_steps and max_tokens, rounded down to whole steps. None if both are null. max_epochs may end
    the run earlier.
    """
    trainer = config["trainer"]
    steps, tokens = trainer.get("max_steps"), trainer.get("max_tokens")
    bounds = [steps, None if tokens is None else tokens // step_tokens(config["data"])]
    return min((bound for bound in bounds if bound is not None), default=None)


def run_steps(config: Mapping[str, Any], steps_per_epoch: int) -> int:
    """Returns the optimizer steps of a config's run; at least one of its lengths is set."""
    epochs = config["trainer"].get("max_epochs")
    bounds = [known_steps(config), epochs and epochs * steps_per_epoch]
    return min(bound for bound in bounds if bound)
