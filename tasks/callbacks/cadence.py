"""The steps after which a run logs, validates, saves and stops, and the time spent on steps."""

import time
from dataclasses import dataclass, field

from tasks import Config

MAX_TIME = "trainer.max_time"


class Cadence:
    """The steps after which something happens. A step is given as the number of steps done."""

    def __init__(self, config: Config, total: int):
        trainer = config.get("trainer", {})
        self.total = total
        self.log_every = trainer.get("log_every_n_steps", 10)
        self.val_every = trainer.get("val_every")
        self.checkpoint_every = trainer.get("checkpoint_every")
        self.keep_every = config.get("checkpoints", {}).get("keep_every")
        self.saves_checkpoints = trainer.get("enable_checkpointing", True)
        self.stop_step: int | None = None  # if the run ends before `total`
        self.stop_reason = ""
        self.stop_detail = ""

    def stop_at(self, step: int, reason: str, detail: str = "") -> None:
        """Make this step the last one. reason: what ended the run; detail: why it did."""
        self.stop_step = step
        self.stop_reason = reason
        self.stop_detail = detail

    def stop_state(self) -> tuple[int, str, str] | None:
        """Returns the arguments of `stop_at` for a checkpoint, after which the resumed run ends at
        the same step; None if nothing ended it, or trainer.max_time, which a resumed run has again.
        """
        if self.stop_step is None or self.stop_reason == MAX_TIME:
            return None
        return self.stop_step, self.stop_reason, self.stop_detail

    def is_last(self, step: int) -> bool:
        return step in (self.total, self.stop_step)

    def stop_message(self) -> str | None:
        """Returns what ended the run before `total`; None if nothing did."""
        if self.stop_step is None:
            return None
        detail = f" ({self.stop_detail})" if self.stop_detail else ""
        return f"stopped by {self.stop_reason} at step {self.stop_step:,} of {self.total:,}{detail}"

    def logs_at(self, step: int) -> bool:
        return step % self.log_every == 0 or self.is_last(step)

    def validates_at(self, step: int) -> bool:
        return self.is_last(step) or bool(self.val_every and step % self.val_every == 0)

    def saves_at(self, step: int) -> bool:
        intervals = (self.checkpoint_every, self.keep_every)
        return self.saves_checkpoints and any(every and step % every == 0 for every in intervals)

    def reads_step(self, step: int) -> bool:
        """Whether a step is logged, validated or saved, so that its values are read anyway."""
        return self.logs_at(step) or self.validates_at(step) or self.saves_at(step)


@dataclass
class TrainingClock:
    """Seconds spent on steps: from each `resume`, or else the last `tick`, to the next `tick`."""

    spent: float = 0.0
    since: float = field(default_factory=time.perf_counter)

    def tick(self) -> float:
        """Add the time since the last call and return the total."""
        now = time.perf_counter()
        self.spent, self.since = self.spent + now - self.since, now
        return self.spent

    def resume(self) -> None:
        """Leave out the time since the last `tick`."""
        self.since = time.perf_counter()
