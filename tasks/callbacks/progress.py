"""The progress bar of a run."""

from dataclasses import dataclass
from typing import Any

from tasks.callbacks.cadence import TrainingClock
from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.bar import Bar
from tasks.metrics import format_validation


@dataclass(eq=False)
class ProgressBar:
    """Redraws the bar a few times a second; only then does it read the loss."""

    bar: Bar
    clock: TrainingClock
    pace: float | None = None  # seconds per step, smoothed
    seen: tuple[int, float] = (0, 0.0)

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.seen = task.step, self.clock.spent

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if not self.bar.due(task.step):
            return
        step, spent = task.step, self.clock.spent
        pace = (spent - self.seen[1]) / max(1, step - self.seen[0])
        self.pace = pace if self.pace is None else 0.7 * self.pace + 0.3 * pace
        self.seen = step, spent
        loss = float(task.step_state.sums[0] / task.step_state.sums[1])
        speed = task.tokens_per_step() / self.pace if self.pace else 0.0
        self.bar.show(step, loss, speed, self.pace * (self.bar.total - step))

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        self.bar.print_line(f"step {task.step:,}: {format_validation(task.validation)}")
