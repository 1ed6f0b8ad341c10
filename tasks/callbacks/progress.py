"""Updates the progress bar of a run."""

from dataclasses import dataclass
from typing import Any

from tasks.callbacks.cadence import TrainingClock
from tasks.logging.bar import Bar
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.metrics.printed import format_validation


@dataclass(eq=False)
class ProgressObserver:
    """Updates the bar when it is due; only then the loss is read, which waits for the device. The
    average excludes the first step, which is longer than the others, in particular with
    compilation.
    """

    bar: Bar
    clock: TrainingClock
    seconds_per_step: float | None = None  # exponential moving average
    first_step: int = 0
    shown: tuple[int, float] = (0, 0.0)  # step and seconds of the last update

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.first_step = task.step + 1
        self.shown = task.step, self.clock.spent

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if not self.bar.due(task.step):
            return
        last_step, last_seconds = self.shown
        self.shown = step, seconds = task.step, self.clock.spent
        pace = (seconds - last_seconds) / max(1, step - last_step)
        if self.seconds_per_step is not None:
            pace = 0.7 * self.seconds_per_step + 0.3 * pace
        if step != self.first_step:
            self.seconds_per_step = pace
        loss = float(task.step_state.nats / task.step_state.tokens)
        speed = task.tokens_per_step() / pace if pace else 0.0
        self.bar.show(step, loss, speed, pace * (self.bar.total - step))

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        self.bar.print_line(f"step {task.step:,}: {format_validation(task.validation)}")
