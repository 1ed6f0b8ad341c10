"""Observers that end a run: at a non-finite step, trainer.max_time, a callback or a signal."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.callbacks.cadence import MAX_TIME, Cadence
from tasks.callbacks.user_callbacks import stopping_detail
from tasks.modules.evaluation import EvaluatedTask as Task
from tasks.process.exit_codes import SignalBox, StoppedBySignal, decode_signal, decode_time_is_up


@dataclass(eq=False)
class NonFiniteGuard:
    """Ends a run that skipped a step because its loss or gradient was not finite. `explain(step)`
    returns the error, which names the first module with a non-finite output.
    """

    cadence: Cadence
    explain: Callable[[int], Exception]

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        is_cheap = task.step_state.skipped is not None and task.device.type == "cpu"
        if (is_cheap or self.cadence.reads_step(task.step)) and task.stops_at_nonfinite:
            self.check(task)

    def check(self, task: Task) -> None:
        """Raises NonFinite if a step was skipped. Waits for the device."""
        step = int(task.first_nonfinite)
        if step >= 0:
            raise self.explain(step)


@dataclass(eq=False)
class Deadline:
    """Makes the current step the last one when a rank has trained for `limit` seconds.

    It runs before the observers that record, validate and save, so that they treat the step as the
    last one.
    """

    cadence: Cadence
    limit: float
    signals: SignalBox

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.deadline = time.monotonic() + self.limit

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if not self.cadence.is_last(task.step) and self._over(trainer, task):
            self.cadence.stop_at(task.step, MAX_TIME)
            trainer.should_stop = True

    def _over(self, trainer: Any, task: Task) -> bool:
        """Whether the time of any rank is over."""
        time_is_up = self.signals.time_is_up = time.monotonic() >= self.deadline
        if trainer.world_size == 1:
            return time_is_up
        return decode_time_is_up(sum_of_signals(self.cadence, task))


@dataclass(eq=False)
class RequestedStop:
    """Makes the current step the last one when a callback has set trainer.should_stop.

    delays: whether a request at a validation ends the run one step later, because the weights to
    evaluate at the end must be known before the validation.
    """

    cadence: Cadence
    callbacks: Mapping[str, Any]
    delays: bool
    is_early: bool = False  # whether a callback has requested it before the first step

    def on_fit_start(self, trainer: Any, task: Task) -> None:
        """Takes no step if the run had ended before it was resumed, and otherwise at least one,
        after which it is validated and saved.
        """
        has_ended = self.cadence.stop_step == task.step
        self.is_early |= trainer.should_stop and not has_ended
        trainer.should_stop = has_ended

    on_train_start = on_fit_start

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        trainer.should_stop |= self.is_early or self.cadence.stop_step == task.step
        if trainer.should_stop and not self.cadence.is_last(task.step):
            self._stop_at(task.step)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not trainer.should_stop or self.cadence.is_last(task.step):
            return
        trainer.should_stop = not self.delays
        last = task.step + self.delays
        if last < self.cadence.total:
            self._stop_at(last)

    def _stop_at(self, step: int) -> None:
        """Names the callback that gives a reason for the stop, or all that may have requested
        it.
        """
        details = {name: stopping_detail(callback) for name, callback in self.callbacks.items()}
        names = [name for name, detail in details.items() if detail] or [*details]
        reason = " or ".join(f"callbacks.{name}" for name in names)
        self.cadence.stop_at(step, reason, details[names[0]] or "")


@dataclass(eq=False)
class SignalStop:
    """Ends the run after a signal, when the step is recorded. `save()` saves its state.

    callbacks_log: whether a user's callbacks may log values, which Lightning passes to the loggers
    after on_train_batch_end. The run then ends in the next on_train_batch_start.
    """

    cadence: Cadence
    signals: SignalBox
    guard: NonFiniteGuard
    save: Callable[[], None]
    callbacks_log: bool = False
    stop: StoppedBySignal | None = None  # to be raised before the next step

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        step = self.signals.step = task.step
        if step >= self.cadence.total:
            trainer.should_stop = True  # so that Lightning validates once more
        elif not self.cadence.validates_at(step) and (number := self._signal_number(trainer, task)):
            self.stop = self._saved_stop(task, number)
            if not self.callbacks_log:
                raise self.stop

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if task.step < self.cadence.total and (number := self._signal_number(trainer, task)):
            raise self._saved_stop(task, number)

    def _signal_number(self, trainer: Any, task: Task) -> int:
        """Returns the signal that a rank received; 0 if none."""
        single = trainer.world_size == 1
        return self.signals.number if single else decode_signal(sum_of_signals(self.cadence, task))

    def _saved_stop(self, task: Task, number: int) -> StoppedBySignal:
        if task.stops_at_nonfinite:
            self.guard.check(task)
        self.save()
        return StoppedBySignal(number, task.step)


@dataclass(eq=False)
class StopBeforeStep:
    """Ends the run before a step, before the user's callbacks learn that it begins."""

    signal_stop: SignalStop

    def on_train_batch_start(self, trainer: Any, task: Task) -> None:
        if self.signal_stop.stop is not None:
            raise self.signal_stop.stop


def sum_of_signals(cadence: Cadence, task: Task) -> int:
    """Returns the sum of `encode_signal` over all ranks, so that all stop at the same step.
    On a GPU it is 0 except at steps at which the run waits for the device anyway.
    """
    is_read = task.device.type == "cpu" or cadence.reads_step(task.step)
    return int(task.step_state.signals) if is_read else 0
