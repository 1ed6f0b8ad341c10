"""What happens around a step? Observers that cost little each step, and do their work now and then.

In the order in which they run: Guard, Requested, Deadline, Recorder, ProgressBar, Samples,
Averages, Checkpoints, Profile, Pruning, Stopper. All count optimizer steps. Each defines those of
Lightning's hooks that it needs, as (trainer, task). A user's own callbacks (users.py) are
Lightning's, and run before them.
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


class Observers(Callback):
    """All observers as one callback: Lightning's bookkeeping around a hook costs more than most of
    them do.
    """

    def __init__(self, observers: Sequence[Any]):
        hooks = (
            "on_fit_start",
            "on_train_start",
            "on_train_batch_end",
            "on_validation_start",
            "on_validation_end",
            "on_train_end",
            "on_exception",
        )
        self.called = {
            hook: [getattr(o, hook) for o in observers if hasattr(o, hook)] for hook in hooks
        }

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        for hook in self.called["on_fit_start"]:
            hook(trainer, task)

    def on_train_start(self, trainer: Any, task: Any) -> None:
        for hook in self.called["on_train_start"]:
            hook(trainer, task)

    def on_train_batch_end(
        self, trainer: Any, task: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for hook in self.called["on_train_batch_end"]:
            hook(trainer, task)

    def on_validation_start(self, trainer: Any, task: Any) -> None:
        for hook in self.called["on_validation_start"]:
            hook(trainer, task)

    def on_validation_end(self, trainer: Any, task: Any) -> None:
        if not trainer.sanity_checking:
            for hook in self.called["on_validation_end"]:
                hook(trainer, task)

    def on_train_end(self, trainer: Any, task: Any) -> None:
        for hook in self.called["on_train_end"]:
            hook(trainer, task)

    def on_exception(self, trainer: Any, task: Any, error: BaseException) -> None:
        for hook in self.called["on_exception"]:
            hook(trainer, task, error)
