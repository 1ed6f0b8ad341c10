"""Observers of training: each costs little per step, and does its work every so many steps.

In the order in which they run: NonFiniteGuard, RequestedStop, Deadline, Recorder, watchers,
ProgressBar, Samples, Averages, CheckpointSaver, Profile, Pruning, SignalStop. All count optimizer
steps. Each defines the Lightning hooks that it needs, with the arguments (trainer, task). A user's
own callbacks (users.py) are Lightning's, and run before them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch import Callback

HOOKS = (
    "on_fit_start",
    "on_train_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_train_end",
    "on_exception",
)


class Observers(Callback):
    """All observers as one callback: Lightning's bookkeeping around a hook costs more than most of
    them do.
    """

    def __init__(self, observers: Sequence[Any]):
        for hook in HOOKS:
            called = [getattr(one, hook) for one in observers if hasattr(one, hook)]
            setattr(self, hook, partial(self._call, called, hook == "on_exception"))

    @staticmethod
    def _call(called: list[Any], of_error: bool, trainer: Any, task: Any, *more: Any) -> None:
        """`more`: the error, or a batch, which no observer reads."""
        if not trainer.sanity_checking:
            for observe in called:
                observe(trainer, task, *(more if of_error else ()))
