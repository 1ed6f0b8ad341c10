"""Creates early stopping and a user's own callbacks from the config, and checks the states that
they save.
"""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from torch import Tensor

from tasks import Facts
from xformer_kit.config.callbacks import CALLBACKS, only_observes
from xformer_kit.config.callbacks import EarlyStopping as EarlyStoppingOptions
from xformer_kit.config.metric_names import mode_of
from xformer_kit.registry import ConfigError, Fault, config_error


def create_callbacks(config: Facts, run_dir: Path, saved: Facts) -> dict[str, Callback]:
    """Returns {name: callback} in the order of the config, each with its state of the checkpoint if
    there is one. saved: name -> state.

    Raises ConfigError for one that is not a `lightning.pytorch.Callback`, that saves checkpoints
    itself, or whose state a checkpoint cannot contain.
    """
    callbacks: dict[str, Callback] = {}
    for name, options in (config.get("callbacks") or {}).items():
        if only_observes(name):
            continue  # created by built_in.py
        callback = CALLBACKS.create({"name": name} | dict(options), run_dir=run_dir)
        if isinstance(callback, EarlyStoppingOptions):
            callback = early_stopping(callback)
        rule = fix = ""
        if not isinstance(callback, Callback):
            rule, fix = "must be a lightning.pytorch.Callback", "Derive it from that."
        elif isinstance(callback, Checkpoint):
            rule = "must not save checkpoints"
            fix = (
                "A run saves them by itself, every trainer.checkpoint_every steps and at the lowest"
                " val/loss."
            )
        if rule:
            raise config_error(f"callbacks.{name}", rule, got=type(callback).__name__, fix=fix)
        if state := saved.get(name):
            callback.load_state_dict(state)
        if fault := state_fault(name, callback.state_dict()):
            raise ConfigError(fault)
        callbacks[name] = callback
    return callbacks


def early_stopping(options: EarlyStoppingOptions) -> EarlyStopping:
    """Returns Lightning's callback. A metric that is not finite is not better than any other."""
    return EarlyStopping(
        options.metric,
        min_delta=options.min_delta,
        patience=options.patience,
        mode=mode_of(options.metric, options.mode),
        check_finite=False,
    )


def state_fault(name: str, state: Any) -> Fault | None:
    """Returns the fault of a state that a checkpoint cannot contain, because checkpoints are read
    without running code.
    """
    wrong_type = _first_wrong_type(state)
    if wrong_type is None:
        return None
    return Fault(
        f"callbacks.{name}",
        "its state_dict must hold tensors and plain values, as a checkpoint does",
        wrong_type,
        "Turn it into numbers, texts, lists or mappings.",
    )


def _first_wrong_type(value: Any) -> str | None:
    """Returns the type of the first nested value that is neither a tensor nor plain."""
    if type(value) is dict:
        value = [*value, *value.values()]
    if type(value) in (list, tuple):
        return next(filter(None, map(_first_wrong_type, value)), None)
    plain = type(value) in (type(None), bool, int, float, str, Tensor)
    return None if plain else type(value).__name__
