"""Records steps in metrics.csv and speed.csv."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tasks import Metrics
from tasks.callbacks.cadence import Cadence, TrainingClock
from tasks.callbacks.monitored import set_callback_metrics
from tasks.logging.csv_log import CsvLog
from tasks.logging.summary import peak_memory
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.files.saved_files import read_columns
from xformer_kit.metrics import VAL, of_split
from xformer_kit.registry import ConfigError

WARM_UP = 5  # steps that are not measured, if there are more


@dataclass(eq=False)
class Recorder:
    """Writes rows of metrics.csv and speed.csv, and passes them to the logger. The row of a step
    that is validated is written after the validation.

    What a user's callbacks log from the start of a step to the end of its validation is in the
    step's row of metrics.csv; what they log at other times, which differs after a resume, is in the
    next row of speed.csv.

    began: start of this process as time.perf_counter, since the wall clock may be set back.
    spent_before: what `spent` returned in the earlier processes of the run.
    """

    cadence: Cadence
    metrics: CsvLog | None  # None except on rank 0
    speed: CsvLog | None
    logger: Any
    began: float
    spent_before: Mapping[str, float]
    peak_speed: float | None = None  # tokens per second at an MFU of 1; None if not known
    clock: TrainingClock = field(default_factory=TrainingClock)
    row: Metrics = field(default_factory=dict)  # metrics of the step that are not written yet
    speed_row: Metrics = field(default_factory=dict)
    own_row: Metrics = field(default_factory=dict)  # values of callbacks for metrics.csv
    other_row: Metrics = field(default_factory=dict)  # values of callbacks for speed.csv
    measured_seconds: float = 0.0
    measured_steps: int = 0

    def __post_init__(self) -> None:
        self.logged_row = self.other_row  # the row of what callbacks log at present

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
        logs = self.cadence.logs_at(task.step)
        if logs:
            self.measure(trainer, task)
        if self.metrics is None:
            return
        if logs:
            self._write_speed(task.step)
            # Lightning passes them to the loggers when the step may have been saved.
            self.record(trainer._logger_connector.metrics["log"])
        if not self.cadence.validates_at(task.step):
            self._write(task)
            self.logged_row = {}  # Lightning passes what is recorded already

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
        speed = task.tokens_per_step() / seconds_per_step
        self.speed_row = {"seconds_per_step": seconds_per_step, "tokens_per_second": speed}
        if self.peak_speed is not None:
            self.speed_row["mfu"] = speed / self.peak_speed
        set_callback_metrics(trainer, self.row | self.speed_row)

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.clock.tick()

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if self.metrics is not None:
            self.row |= of_split(task.validation)
            self._write(task)
            self.logged_row = self.other_row
        self.clock.resume()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        if self.other_row:
            self._write_speed(task.step)

    def record(self, values: Mapping[str, Any], *, of_lightning: bool = False) -> None:
        """Adds the numbers that a callback logs to the row of its step. of_lightning: whether it is
        one of Lightning's own callbacks, of which several measure the machine.
        """
        row = self.other_row if of_lightning else self.logged_row
        for name, value in values.items():
            with suppress(TypeError, ValueError, RuntimeError):
                row[" ".join(str(name).split())] = float(value)

    def _write(self, task: Task) -> None:
        if self.row or self.own_row:
            row = self.own_row | {"step": task.step} | self.row
            self.metrics.add(row)  # type: ignore[union-attr]
        if self.row:
            tokens = {"tokens": self.tokens(task)}
            self.logger(self.row | self.speed_row | tokens, task.step)
            self.row, self.speed_row = {}, {}
        self.own_row.clear()

    def _write_speed(self, step: int) -> None:
        row = self.other_row | {"step": step, "time": f"{time.time():.3f}"} | self.speed_row
        self.speed.add(row)  # type: ignore[union-attr]
        self.other_row.clear()

    def tokens(self, task: Task) -> float:
        """Returns the number of tokens that the run has read in all its processes."""
        return self.spent_before.get("tokens_read", 0) + task.total_tokens()

    def last_validation(self, task: Task) -> Metrics:
        """Returns the metrics of the last step's validation, with those of a user's callbacks."""
        metrics = of_split(task.validation)
        with suppress(OSError, ConfigError):  # of a file that was changed while the run trained
            columns = read_columns(self.metrics.path)  # type: ignore[union-attr]
            for name, (steps, values) in columns.items():
                if name.startswith(VAL) and task.step in steps:
                    metrics.setdefault(name, values[-1])
        return metrics

    def fingerprint(self) -> Any:
        """Returns the fingerprint of metrics.csv for a checkpoint; None on ranks without one. The
        file is on the disk when it returns.
        """
        return self.metrics and self.metrics.fingerprint()

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
    trainer.callback_metrics, and records what these log from the start of the step on.
    """

    recorder: Recorder

    def on_train_batch_start(self, trainer: Any, task: Task) -> None:
        self.recorder.logged_row = self.recorder.own_row
        for result in trainer._results.values():
            result._forward_cache = None  # Lightning would log the value of an earlier step again

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.recorder.cadence.logs_at(task.step):
            self.recorder.measure(trainer, task)
