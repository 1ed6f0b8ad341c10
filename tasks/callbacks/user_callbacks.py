"""Creates early stopping and a user's own callbacks from the config, and checks the states that
they save.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, callbacks
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor

from tasks import Facts
from xformer_kit.config.options.callbacks import CALLBACKS, only_observes
from xformer_kit.config.options.callbacks import EarlyStopping as EarlyStoppingOptions
from xformer_kit.metrics import mode_of
from xformer_kit.registry import ConfigError, Fault, config_error
from xformer_kit.registry.messages import one_line

# Lightning's callbacks that a run cannot use -> what replaces them.
REPLACED: dict[type[Callback], str] = {
    callbacks.Checkpoint: "Set checkpoints.keep_best, .metric or .keep_every.",
    callbacks.StochasticWeightAveraging: "Try checkpoints.average=5, or ema.decay=0.999.",
    callbacks.WeightAveraging: "Try ema.decay=0.999.",
    callbacks.ModelPruning: "Prune the model that xformer_kit.load(RUN) returns.",
    callbacks.BaseFinetuning: "Set model.freeze and model.unfreeze_at.",
    callbacks.GradientAccumulationScheduler: "Set trainer.accumulate.",
    callbacks.BatchSizeFinder: "trainer.accumulate=auto finds how many of the rows fit.",
    callbacks.LearningRateFinder: "Use xformer find-lr, or -m optim.lr=0.001,0.003.",
    callbacks.ProgressBar: "trainer.enable_progress_bar=false hides that of the run.",
}


def create_callbacks(config: Facts, run_dir: Path, saved: Facts | None) -> dict[str, Callback]:
    """Returns {name: callback} in the order of the config, each with its state of the checkpoint if
    there is one. saved: name -> state.

    Raises ConfigError for one that is not a `lightning.pytorch.Callback`, whose work an option of
    the config does, or whose state a checkpoint cannot contain.
    """
    created: dict[str, Callback] = {}
    for name, options in (config.get("callbacks") or {}).items():
        if only_observes(name):
            continue  # created by observers.py
        callback = _create(name, options, run_dir)
        if isinstance(callback, EarlyStoppingOptions):
            callback = EarlyStopping(
                callback.metric,
                min_delta=callback.min_delta,
                patience=callback.patience,
                mode=mode_of(callback.metric, callback.mode),
                check_finite=False,  # such a value is not better than any other
            )
        if fault := _unusable(callback):
            raise ConfigError(replace(fault, path=f"callbacks.{name}", got=type(callback).__name__))
        if state := (saved or {}).get(name):
            callback.load_state_dict(state)
        if fault := state_fault(name, callback.state_dict()):
            raise ConfigError(fault)
        created[name] = callback
    return created


def _create(name: str, options: Facts, run_dir: Path) -> Any:
    """Creates a callback. Raises ConfigError if Lightning's own code refuses an option of it."""
    try:
        return CALLBACKS.create({"name": name} | dict(options), run_dir=run_dir)
    except Exception as error:
        if _frame_in_lightning(error) is None:
            raise
        raise config_error(f"callbacks.{name}", one_line(error)) from None


def _frame_in_lightning(error: BaseException) -> FrameType | None:
    """Returns the frame that raised the error if it is of one of Lightning's callbacks."""
    *_, last = (None, *(frame for frame, _ in walk_tb(error.__traceback__)))
    is_of_callback = last and last.f_globals.get("__name__", "").startswith(callbacks.__name__)
    return last if is_of_callback else None


def _unusable(callback: Any) -> Fault | None:
    """Returns the fault of a callback that a run cannot use, without its path."""
    if not isinstance(callback, Callback):
        return Fault("", "must be a lightning.pytorch.Callback", fix="Derive it from that.")
    for replaced, fix in REPLACED.items():
        if isinstance(callback, replaced):
            return Fault("", "is not supported in a run", fix=fix)
    not_called = {"on_save_checkpoint", "on_load_checkpoint"}.intersection(own_hooks(callback))
    if not not_called:
        return None
    rule = f"must not define {' or '.join(sorted(not_called))}, which a run does not call"
    return Fault("", rule, fix="Define state_dict and load_state_dict.")


def stopping_detail(callback: Callback) -> str | None:
    """Returns why Lightning's EarlyStopping has stopped the run; None if it has not, or for another
    callback.
    """
    if not isinstance(callback, EarlyStopping) or callback.stopping_reason_message is None:
        return None
    return callback.stopping_reason_message.removesuffix(" Signaling Trainer to stop.")


def own_hooks(callback: Callback) -> list[str]:
    """Returns the hooks that a callback defines in its class or as an attribute, without those of
    Lightning's own classes.
    """
    own = (one for one in type(callback).__mro__ if not one.__module__.startswith("lightning."))
    names = {name for one in (*own, callback) for name in vars(one)}
    return sorted(name for name in names if name.startswith("on_"))


def notes_on_hooks(created: Mapping[str, Callback]) -> Iterator[str]:
    """Yields a note for each callback with hooks of Lightning's loops that a run does not have."""
    for name, callback in created.items():
        hooks = [hook for hook in own_hooks(callback) if hook.startswith(("on_test", "on_predict"))]
        if hooks:
            verb = "is" if len(hooks) == 1 else "are"
            yield (
                f"callbacks.{name}: {' and '.join(hooks)} {verb} not called, since a run trains"
                " and validates only."
            )


def raised_fault(error: BaseException, created: Mapping[str, Callback]) -> Fault | None:
    """Returns the fault of a callback if Lightning's own code of it raised the error: it needs
    something that the run does not have, such as a metric.
    """
    if (frame := _frame_in_lightning(error)) is None:
        return None
    for name, callback in created.items():
        if frame.f_locals.get("self") is callback:
            return Fault(f"callbacks.{name}", one_line(error))
    return None


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
