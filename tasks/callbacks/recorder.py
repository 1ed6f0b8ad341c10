"""Records steps in metrics.csv and speed.csv."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks import Metrics, State
from tasks.callbacks.cadence import Cadence, TrainingClock
from tasks.callbacks.monitored import set_callback_metrics
from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.csv_log import CsvLog
from tasks.logging.summary import peak_memory

WARM_UP = 5  # steps that are not measured, if there are more


@dataclass(eq=False)
class Recorder:
    """Writes rows of metrics.csv and speed.csv, and passes them to the logger. The row of a step
    that is validated is written after the validation.

    began: start of this process as time.perf_counter, since the wall clock may be set back.
    spent_before: what `spent` returned in the earlier processes of the run.
    """

    cadence: Cadence
    metrics: CsvLog | None  # None except on rank 0
    speed: CsvLog | None
    logger: Any
    began: float
    spent_before: Mapping[str, float]
    clock: TrainingClock = field(default_factory=TrainingClock)
    row: Metrics = field(default_factory=dict)  # metrics of the step that are not written yet
    speed_row: Metrics = field(default_factory=dict)
    measured_seconds: float = 0.0
    measured_steps: int = 0

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.clock.resume()
        self.first_step = self.logged_step = task.step
        self.logged_seconds = 0.0
        self.warm_up = 0, self.clock.spent  # steps and seconds

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        seconds = self.clock.tick()
        steps = task.step - self.first_step
        warm_up_steps, warm_up_seconds = self.warm_up
        self.measured_steps = steps - warm_up_steps
        self.measured_seconds = seconds - warm_up_seconds
        if steps == WARM_UP:
            self.warm_up = steps, seconds
        if not self.cadence.logs_at(task.step):
            return
        self.measure(trainer, task)
        if self.metrics is not None:
            times = {"time": time.time(), "step": task.step}
            self.speed.add(times | self.speed_row)  # type: ignore[union-attr]
            if not self.cadence.validates_at(task.step):
                self._write(task)

    def measure(self, trainer: Any, task: Task) -> None:
        """Computes the metrics of the steps since the last row, once per step, and adds them to
        trainer.callback_metrics.
        """
        if task.step == self.logged_step:
            return
        self.row = task.training_metrics()
        seconds = self.clock.tick()
        elapsed = seconds - self.logged_seconds
        seconds_per_step = elapsed / max(1, task.step - self.logged_step)
        self.logged_step, self.logged_seconds = task.step, seconds
        self.speed_row = {
            "seconds_per_step": seconds_per_step,
            "tokens_per_second": task.tokens_per_step() / seconds_per_step,
        }
        set_callback_metrics(trainer, self.row | self.speed_row)

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.clock.tick()

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if self.metrics is not None:
            self.row |= {f"val/{name}": value for name, value in task.validation.items()}
            self._write(task)
        self.clock.resume()

    def _write(self, task: Task) -> None:
        self.metrics.add({"step": task.step} | self.row)  # type: ignore[union-attr]
        tokens = {"tokens": self.tokens(task)}
        self.logger(self.row | self.speed_row | tokens, task.step)
        self.row, self.speed_row = {}, {}

    def tokens(self, task: Task) -> float:
        """Returns the number of tokens that the run has read in all its processes."""
        return self.spent_before.get("tokens_read", 0) + task.total_tokens()

    def fingerprint(self) -> State:
        """Returns the fingerprint of metrics.csv for a checkpoint; empty on ranks without one. The
        file is on the disk when it returns.
        """
        return {} if self.metrics is None else self.metrics.fingerprint()

    def spent(self, task: Task, device: Any) -> Metrics:
        """Returns what the run has used in all its processes: seconds, seconds and tokens of the
        measured steps, tokens of all steps, and the peak memory of a process in bytes.
        """
        before = self.spent_before
        here = {
            "seconds": time.perf_counter() - self.began,
            "measured_seconds": self.measured_seconds,
            "tokens": task.tokens_per_step() * self.measured_steps,
            "tokens_read": task.total_tokens(),
        }
        peak = max(before.get("peak_memory_bytes", 0), peak_memory(device))
        total = {name: before.get(name, 0) + value for name, value in here.items()}
        return total | {"peak_memory_bytes": peak}

    @staticmethod
    def tokens_per_second(spent: Mapping[str, float]) -> float | None:
        """Returns the speed over the steps after the warm-up, or over all steps if there are no
        more; None if there are none.
        """
        return spent["tokens"] / spent["measured_seconds"] if spent["measured_seconds"] else None


@dataclass(eq=False)
class EarlyMeasurement:
    """Computes the metrics of a step before the user's callbacks run, which read them in
    trainer.callback_metrics.
    """

    recorder: Recorder

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.recorder.cadence.logs_at(task.step):
            self.recorder.measure(trainer, task)
