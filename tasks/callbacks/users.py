"""A user's own callbacks: built from the config, kept in checkpoints."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from tasks import Facts
from xformer_kit.config.callbacks import CALLBACKS, only_observes
from xformer_kit.registry import ConfigError, Fault, config_error


def create_callbacks(config: Facts, run_dir: Path, saved: Facts) -> dict[str, Callback]:
    """Name -> callback, in the order of the config, with its state if a checkpoint has one.

    Raises ConfigError for one that is not a `lightning.pytorch.Callback`, that saves checkpoints of
    its own, or whose state a checkpoint cannot hold.
    """
    found: dict[str, Callback] = {}
    for name, options in (config.get("callbacks") or {}).items():
        if only_observes(name):
            continue  # watching.py makes those
        one = CALLBACKS.create({"name": name} | dict(options), run_dir=run_dir)
        if not isinstance(one, Callback):
            rule, way = "must be a lightning.pytorch.Callback", "Derive it from that."
            raise config_error(f"callbacks.{name}", rule, got=type(one).__name__, fix=way)
        if isinstance(one, Checkpoint):
            way = (
                "A run saves them by itself, every trainer.checkpoint_every steps and at the lowest"
                " val/loss."
            )
            rule = "must not save checkpoints"
            raise config_error(f"callbacks.{name}", rule, got=type(one).__name__, fix=way)
        if state := saved.get(name):
            one.load_state_dict(state)
        if fault := unsaved(name, one.state_dict()):
            raise ConfigError(fault)
        found[name] = one
    return found


def unsaved(name: str, state: Any) -> Fault | None:
    """The fault of a state that a checkpoint cannot hold, as one is read without running code."""
    odd = _odd(state)
    if odd is None:
        return None
    return Fault(
        f"callbacks.{name}",
        "its state_dict must hold tensors and plain values, as a checkpoint does",
        odd,
        "Turn it into numbers, texts, lists or mappings.",
    )


def _odd(value: Any) -> str | None:
    """The type of what is neither a tensor nor plain, wherever it is in a value."""
    if type(value) is dict:
        value = [*value, *value.values()]
    if type(value) in (list, tuple):
        return next(filter(None, map(_odd, value)), None)
    plain = value is None or type(value) in (bool, int, float, str, Tensor)
    return None if plain else type(value).__name__
