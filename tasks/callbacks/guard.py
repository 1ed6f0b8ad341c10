"""Is the state good, and was the run told to stop?"""

import time
from typing import Any

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.run.exit_codes import SignalBox, StoppedBySignal, elected, overtime


class NonFiniteGuard:
    """Ends a run that left out a step because it was not finite; `explain(step)` says which module
    broke.
    """

    def __init__(self, plan: Cadence, explain: Any):
        self.plan = plan
        self.explain = explain

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        cheap = task.now.bad is not None and task.device.type == "cpu"
        if (cheap or self.plan.due(task.step)) and task.stops_at_nonfinite:
            self.check(task)

    def check(self, task: Task) -> None:
        """Raises NonFinite where a step was left out. Waits for the device."""
        step = int(task.nonfinite)
        if step >= 0:
            raise self.explain(step)


class Deadline:
    """Ends training, as if its last step had come, once it has gone on for `limit` seconds in this
    process.

    It runs before all that looks at a step, so that the step is validated, written down and saved.
    """

    def __init__(self, plan: Cadence, limit: float, signals: SignalBox):
        self.plan = plan
        self.limit = limit
        self.signals = signals

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.until = time.monotonic() + self.limit

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step < self.plan.total and self._over(trainer, task):
            self.plan.end(task.step, "trainer.max_time")
            trainer.should_stop = True

    def _over(self, trainer: Any, task: Task) -> bool:
        self.signals.late = time.monotonic() >= self.until
        if trainer.world_size == 1:
            return self.signals.late
        # As with signals: ranks vote with the step's sums, so that all stop at the same one.
        return (
            overtime(int(task.now.sums[3]))
            if task.device.type == "cpu" or self.plan.due(task.step)
            else False
        )


class RequestedStop:
    """Ends training, as if its last step had come, where a user's callback has set
    trainer.should_stop.

    late: at a validation, end with the step after it, since what is judged at the end is known only
    before a validation.
    """

    def __init__(self, plan: Cadence, late: bool):
        self.plan = plan
        self.late = late
        self.next = False

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        trainer.should_stop |= self.next
        if trainer.should_stop and not self.plan.ends(task.step):
            self.plan.end(task.step, "a callback")

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not trainer.should_stop or self.plan.ends(task.step):
            return
        if self.late:
            trainer.should_stop, self.next = False, True
        else:
            self.plan.end(task.step, "a callback")


class SignalStop:
    """Ends the run where it was asked to, once all of the step is written down. `save()` keeps its
    state.
    """

    def __init__(self, plan: Cadence, signals: SignalBox, guard: NonFiniteGuard, save: Any):
        self.plan = plan
        self.signals = signals
        self.guard = guard
        self.save = save

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        step = self.signals.step = task.step
        if step >= self.plan.total:
            trainer.should_stop = True  # so that Lightning validates once more
        elif not self.plan.validates(step) and (number := self._asked(trainer, task)):
            self._stop(task, number)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if task.step < self.plan.total and (number := self._asked(trainer, task)):
            self._stop(task, number)

    def _asked(self, trainer: Any, task: Task) -> int:
        if trainer.world_size == 1:
            return self.signals.number
        # All ranks stop at the same step. On a GPU the sum is read where the run waits for the
        # device anyway.
        return (
            elected(int(task.now.sums[3]))
            if task.device.type == "cpu" or self.plan.due(task.step)
            else 0
        )

    def _stop(self, task: Task, number: int) -> None:
        if task.stops_at_nonfinite:
            self.guard.check(task)
        self.save()
        raise StoppedBySignal(number, task.step)
