"""Saves the state of a run."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import State
from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.recorder import Recorder
from tasks.callbacks.users import unsaved
from tasks.evaluation import EvaluatedTask as Task
from tasks.run import checkpoints, ranks
from tasks.run.exit_codes import NotSaved


@dataclass(eq=False)
class CheckpointSaver:
    """Saves `last` when it is due and at the end, `best` when the validation loss is the lowest so
    far.
    """

    cadence: Cadence
    folder: Path
    fixed: State
    recorder: Recorder
    users: State
    averages: Averages | None
    best: float | None  # the lowest validation loss
    saved: int  # the step whose state was saved last, -1 if none was

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.cadence.checkpoints(task.step) and not self.cadence.validates(task.step):
            self.save(trainer, task)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not self.cadence.saves:
            return
        step, loss = task.step, task.validation["loss"]
        better = self.best is None or loss < self.best
        self.best = loss if better else self.best
        due = self.cadence.checkpoints(step) or self.cadence.ends(step)
        if better or due or self.cadence.checkpoint_every is None:
            self.save(trainer, task, better)

    def on_exception(self, trainer: Any, task: Task, error: BaseException) -> None:
        """Save the state after the last step that was done, where another rank was lost.

        Only on CPUs: with NCCL, what follows a failed exchange may wait without end. In the midst
        of an update nothing is saved.
        """
        if not ranks.lost_connection(error) or not trainer.training or not task.step_state.complete:
            return
        if trainer.is_global_zero and trainer.strategy.root_device.type == "cpu":
            with suppress(Exception):  # the barrier, after the state is written, fails as well
                self.keep(trainer, task)

    def keep(self, trainer: Any, task: Task) -> None:
        """Save unless that has just been done."""
        if self.cadence.saves and self.saved != task.step:
            self.save(trainer, task)

    def save(self, trainer: Any, task: Task, better: bool = False) -> None:
        """Write the state after a step. Every rank takes part; the first writes."""
        self.recorder.clock.tick()
        strategy = trainer.strategy
        state = {
            "state_dict": strategy.lightning_module_state_dict(),
            "global_step": task.step,
            "optimizer": strategy.optimizer_state(trainer.optimizers[0]),
            "window": task.metric_sums.cpu(),
            "best": self.best,
            "is_best": better,
            "validation": task.validation,
            "left_out": int(task.skipped_steps),
            "accumulate": task.accumulate,
            "spent": self.recorder.spent(task, strategy.root_device),
            "metrics": self.recorder.mark(),
            "world_size": trainer.world_size,
            **self.fixed,
            **self._of_users(),
        }
        if self.averages is not None and self.averages.average is not None:
            state["average"] = self.averages.average
        if scaler := getattr(trainer.precision_plugin, "scaler", None):
            state["scaler"] = scaler.state_dict()
        if trainer.is_global_zero:
            checkpoints.write(state, self.folder)
            if better:
                checkpoints.keep_as_best(self.folder)
        self.saved = task.step
        strategy.barrier()
        self.recorder.clock.go()

    def _of_users(self) -> State:
        """The state of a user's callbacks, if they have any. Raises NotSaved if it is not plain
        data.
        """
        states = {name: state for name, one in self.users.items() if (state := one.state_dict())}
        for name, state in states.items():
            if fault := unsaved(name, state):
                raise NotSaved(str(fault))
        return {"callbacks": states} if states else {}
