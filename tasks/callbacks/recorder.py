"""Records steps in metrics.csv and speed.csv."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks import Metrics, State
from tasks.callbacks.cadence import Cadence, TrainingClock
from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.csv_log import CsvLog
from tasks.logging.summary import peak_memory

WARM = 5  # steps that are not measured, if there are more


@dataclass(eq=False)
class Recorder:
    """Rows of metrics.csv and speed.csv, and the same for the logger. A step's row is written once
    it is validated.

    began: start of this process as time.perf_counter, since the wall clock may be set back. before:
    what earlier processes of the run returned as `spent`.
    """

    cadence: Cadence
    metrics: CsvLog | None
    speed: CsvLog | None
    logger: Any
    began: float
    before: Mapping[str, float]
    clock: TrainingClock = field(default_factory=TrainingClock)
    row: State = field(default_factory=dict)  # waits for the step's validation
    pace: Metrics = field(default_factory=dict)
    seconds: float = 0.0  # measured
    steps: int = 0  # measured
    last: tuple[int, float] = (0, 0.0)  # (step, seconds) of the last row

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.clock.go()
        self.first, self.last = task.step, (task.step, 0.0)
        self.warm = 0, self.clock.spent

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        spent = self.clock.tick()
        done = task.step - self.first
        self.steps, self.seconds = done - self.warm[0], spent - self.warm[1]
        if done == WARM:
            self.warm = done, spent
        if not self.cadence.logs(task.step):
            return
        row = task.training_metrics()
        before, seconds = self.last
        self.last = task.step, self.clock.tick()
        pace = (self.last[1] - seconds) / max(1, task.step - before)
        if self.metrics is not None:
            self.row = {"step": task.step} | row
            speed = {
                "step": task.step,
                "seconds_per_step": pace,
                "tokens_per_second": task.tokens_per_step() / pace,
            }
            self.speed.add({"time": time.time()} | speed)  # type: ignore[union-attr]
            self.pace = {name: value for name, value in speed.items() if name != "step"}
            if not self.cadence.validates(task.step):
                self._write(task.step)

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.clock.tick()

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if self.metrics is not None:
            self.row = (
                {"step": task.step}
                | self.row
                | {f"val/{name}": v for name, v in task.validation.items()}
            )
            self._write(task.step)
        self.clock.go()

    def _write(self, step: int) -> None:
        self.metrics.add(self.row)  # type: ignore[union-attr]
        self.logger(
            {name: value for name, value in self.row.items() if name != "step"} | self.pace, step
        )
        self.row, self.pace = {}, {}

    def mark(self) -> State:
        """What metrics.csv holds, for a checkpoint; empty on ranks that write none. It is on the
        disk when it returns.
        """
        return {} if self.metrics is None else self.metrics.mark()

    def spent(self, task: Task, device: Any) -> Metrics:
        """What the run has cost so far, in all processes that it took: seconds, those of steps that
        were measured and their tokens, and the most bytes that one process held.
        """
        mine = {
            "seconds": time.perf_counter() - self.began,
            "measured_seconds": self.seconds,
            "tokens": task.tokens_per_step() * self.steps,
        }
        found = {name: self.before.get(name, 0) + value for name, value in mine.items()}
        return found | {
            "peak_memory_bytes": max(self.before.get("peak_memory_bytes", 0), peak_memory(device))
        }

    @staticmethod
    def tokens_per_second(spent: Mapping[str, float]) -> float | None:
        """Over the steps after the warm-up; over all of them if there are no more; None if there
        are none.
        """
        return spent["tokens"] / spent["measured_seconds"] if spent["measured_seconds"] else None
