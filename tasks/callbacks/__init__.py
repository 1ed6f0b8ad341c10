"""Observers of training: each costs little per step, and does its work every so many steps.

In the order in which they run: NonFiniteGuard, RequestedStop, Deadline, Recorder, watchers,
ProgressBar, Samples, Averages, CheckpointSaver, Profile, Pruning, SignalStop. All count optimizer
steps. Each defines the Lightning hooks that it needs, with the arguments (trainer, task). A user's
own callbacks (users.py) are Lightning's, and run before them.
"""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback

from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence, TrainingClock
from tasks.callbacks.checkpoints import CheckpointSaver
from tasks.callbacks.guard import Deadline, NonFiniteGuard, RequestedStop, SignalStop
from tasks.callbacks.profile import Profile
from tasks.callbacks.progress import ProgressBar
from tasks.callbacks.pruning import Pruning
from tasks.callbacks.recorder import Recorder
from tasks.callbacks.samples import Samples

__all__ = [
    "Averages",
    "Checkpoints",
    "Clock",
    "Deadline",
    "Guard",
    "Observers",
    "Plan",
    "Profile",
    "ProgressBar",
    "Pruning",
    "Recorder",
    "Requested",
    "Samples",
    "Stopper",
]


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
        self.called = {
            hook: [getattr(o, hook) for o in observers if hasattr(o, hook)] for hook in HOOKS
        }

    def call(self, hook: str, *arguments: Any) -> None:
        for observer in self.called[hook]:
            observer(*arguments)

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        self.call("on_fit_start", trainer, task)

    def on_train_start(self, trainer: Any, task: Any) -> None:
        self.call("on_train_start", trainer, task)

    def on_train_batch_end(self, trainer: Any, task: Any, *batch: Any) -> None:
        self.call("on_train_batch_end", trainer, task)

    def on_validation_start(self, trainer: Any, task: Any) -> None:
        self.call("on_validation_start", trainer, task)

    def on_validation_end(self, trainer: Any, task: Any) -> None:
        if not trainer.sanity_checking:
            self.call("on_validation_end", trainer, task)

    def on_train_end(self, trainer: Any, task: Any) -> None:
        self.call("on_train_end", trainer, task)

    def on_exception(self, trainer: Any, task: Any, error: BaseException) -> None:
        self.call("on_exception", trainer, task, error)
