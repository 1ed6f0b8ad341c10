"""Observers of training. Most do their work only every few steps, since they run after each step.

In the order in which they run: SharedCores, NonFiniteGuard, RequestedStop, Deadline, Recorder,
NormsLog and AttentionPictures, ProgressObserver, Samples, Averages, CheckpointSaver, Profile,
Pruning, SignalStop. Each defines the Lightning hooks that it needs, with the arguments (trainer,
task); on_exception also receives the error. A user's own callbacks (user_callbacks.py) are
Lightning's, and run before them, after EarlyMeasurement and StopBeforeStep.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch import Callback

HOOKS = (
    "on_fit_start",
    "on_train_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_train_end",
    "on_exception",
)


class Observers(Callback):
    """All observers as one Lightning callback, since Lightning's overhead per callback and hook is
    larger than most of their work.
    """

    def __init__(self, observers: Sequence[Any]):
        for hook in HOOKS:
            methods = [getattr(one, hook) for one in observers if hasattr(one, hook)]
            setattr(self, hook, partial(self._call, methods, hook == "on_exception"))

    @staticmethod
    def _call(
        methods: list[Any], passes_error: bool, trainer: Any, task: Any, *arguments: Any
    ) -> None:
        """Calls each method with trainer and task, and on_exception also with the error. Does
        nothing during Lightning's sanity check.

        arguments: the error, or those of a batch, which no observer reads.
        """
        if not trainer.sanity_checking:
            for method in methods:
                method(trainer, task, *(arguments if passes_error else ()))
