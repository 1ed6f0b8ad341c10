"""Observers that end a run: non-finite steps, trainer.max_time, callbacks and signals."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.run.exit_codes import SignalBox, StoppedBySignal, decode_signal, decode_time_is_up


@dataclass(eq=False)
class NonFiniteGuard:
    """Ends a run that left out a step because it was not finite; `explain(step)` returns the error,
    with the module that was the first to break.
    """

    cadence: Cadence
    explain: Callable[[int], Exception]

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        cheap = task.step_state.skipped is not None and task.device.type == "cpu"
        if (cheap or self.cadence.due(task.step)) and task.stops_at_nonfinite:
            self.check(task)

    def check(self, task: Task) -> None:
        """Raises NonFinite if a step was left out. Waits for the device."""
        step = int(task.first_nonfinite)
        if step >= 0:
            raise self.explain(step)


@dataclass(eq=False)
class Deadline:
    """Makes the current step the last one when this process has trained for `limit` seconds.

    It runs before the observers that validate, record and save, so that they handle the step as the
    last one.
    """

    cadence: Cadence
    limit: float
    signals: SignalBox

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.until = time.monotonic() + self.limit

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step < self.cadence.total and self._over(trainer, task):
            self.cadence.end(task.step, "trainer.max_time")
            trainer.should_stop = True

    def _over(self, trainer: Any, task: Task) -> bool:
        time_is_up = self.signals.time_is_up = time.monotonic() >= self.until
        if trainer.world_size == 1:
            return time_is_up
        return decode_time_is_up(sum_of_signals(self.cadence, task))


@dataclass(eq=False)
class RequestedStop:
    """Makes the current step the last one when a user's callback has set trainer.should_stop.

    late: at a validation, end with the following step instead, since the weights to evaluate at the
    end must be known before a validation.
    """

    cadence: Cadence
    late: bool
    next: bool = False

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        trainer.should_stop |= self.next
        if trainer.should_stop and not self.cadence.ends(task.step):
            self.cadence.end(task.step, "a callback")

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not trainer.should_stop or self.cadence.ends(task.step):
            return
        if self.late:
            trainer.should_stop, self.next = False, True
        else:
            self.cadence.end(task.step, "a callback")


@dataclass(eq=False)
class SignalStop:
    """Ends the run after a signal, once the step is recorded. `save()` saves its state."""

    cadence: Cadence
    signals: SignalBox
    guard: NonFiniteGuard
    save: Callable[[], None]

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        step = self.signals.step = task.step
        if step >= self.cadence.total:
            trainer.should_stop = True  # so that Lightning validates once more
        elif not self.cadence.validates(step) and (number := self._signal_number(trainer, task)):
            self._stop(task, number)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if task.step < self.cadence.total and (number := self._signal_number(trainer, task)):
            self._stop(task, number)

    def _signal_number(self, trainer: Any, task: Task) -> int:
        own = trainer.world_size == 1
        return self.signals.number if own else decode_signal(sum_of_signals(self.cadence, task))

    def _stop(self, task: Task, number: int) -> None:
        if task.stops_at_nonfinite:
            self.guard.check(task)
        self.save()
        raise StoppedBySignal(number, task.step)


def sum_of_signals(cadence: Cadence, task: Task) -> int:
    """The sum over ranks of `encode_signal`, so that all stop at the same step. On a GPU it is read
    at the steps at which the run waits for the device anyway, and is 0 at others.
    """
    read = task.device.type == "cpu" or cadence.due(task.step)
    return int(task.step_state.sums[3]) if read else 0
