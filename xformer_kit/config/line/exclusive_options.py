"""Options that exclude each other: one that the user sets replaces the default of the other.

A default is that of the package: of a component, a task, a model, or an experiment of conf/. What
the line or a file of the user's own sets is theirs; two of those that exclude each other stay as
they are, and are refused where they are checked.
"""

from collections.abc import Collection, Mapping
from typing import Any

from xformer_kit.registry import Node

# Option -> the options that it replaces, each with the value that turns it off.
REPLACES: dict[str, dict[str, Any]] = {
    "data.batch_size": {"data.batch_tokens": None},
    "data.valid_path": {"data.valid": None},
    "data.test_path": {"data.test": 0.0},
    "data.valid": {"data.valid_path": None},
    "data.test": {"data.test_path": None},
    "ffn.width": {"ffn.expand": None, "ffn.multiple_of": None},
    "ffn.expand": {"ffn.width": None},
    "trainer.max_epochs": {"trainer.max_steps": None, "trainer.max_tokens": None},
    "trainer.max_tokens": {"trainer.max_steps": None, "trainer.max_epochs": None},
    "trainer.max_steps": {"trainer.max_tokens": None, "trainer.max_epochs": None},
    "ema.decay": {"checkpoints.average": 1},
    "checkpoints.average": {"ema.decay": None},
    "lora.rank": {"model.freeze": None, "model.unfreeze_at": None},
    "model.freeze": {"lora.rank": None},
}
OFF = {path: off for others in REPLACES.values() for path, off in others.items()}


def without_replaced(config: Node, own: Collection[str]) -> dict[str, Any]:
    """Returns the config in which a default that an option of the user replaces is turned off; own:
    config paths that the user sets.
    """
    found = dict(config)
    for path, others in REPLACES.items():
        if path not in own or _value(config, path) in (None, OFF.get(path)):
            continue
        for other, off in others.items():
            if other not in own and _value(found, other) not in (None, off):
                group, key = other.split(".")
                found[group] = {**found[group], key: off}
    return found


def _value(config: Node, path: str) -> Any:
    """Returns the value at a path GROUP.KEY; None if there is none."""
    group, key = path.split(".")
    node = config.get(group)
    return node.get(key) if isinstance(node, Mapping) else None
