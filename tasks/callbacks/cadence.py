"""The steps at which something is due, and the time spent on steps."""

import time
from dataclasses import dataclass, field

from tasks import Config


class Cadence:
    """At which steps something is due. `step` counts steps done."""

    def __init__(self, trainer: Config, total: int):
        self.total = total
        self.log_every = trainer.get("log_every_n_steps", 10)
        self.val_every = trainer.get("val_every")
        self.checkpoint_every = trainer.get("checkpoint_every")
        self.saves = trainer.get("enable_checkpointing", True)
        # the step at which something ended the run before its last one
        self.ended: int | None = None
        self.by = ""  # what that was

    def end(self, step: int, by: str) -> None:
        """Let this step be the last one."""
        self.ended, self.by = step, by

    def ends(self, step: int) -> bool:
        return step in (self.total, self.ended)

    def stopped(self) -> str | None:
        """What ended the run before its last step; None where nothing did."""
        if self.ended is None:
            return None
        return f"stopped by {self.by} at step {self.ended:,} of {self.total:,}"

    def logs(self, step: int) -> bool:
        return step % self.log_every == 0 or self.ends(step)

    def validates(self, step: int) -> bool:
        return self.ends(step) or bool(self.val_every and step % self.val_every == 0)

    def due(self, step: int) -> bool:
        """Whether something reads what a step gave."""
        return self.logs(step) or self.validates(step) or self.checkpoints(step)

    def checkpoints(self, step: int) -> bool:
        return self.saves and bool(self.checkpoint_every and step % self.checkpoint_every == 0)


@dataclass
class TrainingClock:
    """Seconds spent on steps: the time between two ticks, less what lay between a tick and
    `go`.
    """

    spent: float = 0.0
    since: float = field(default_factory=lambda: time.perf_counter())

    def tick(self) -> float:
        now = time.perf_counter()
        self.spent, self.since = self.spent + now - self.since, now
        return self.spent

    def go(self) -> None:
        self.since = time.perf_counter()
