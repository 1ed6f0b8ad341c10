"""Saves checkpoints."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only

from tasks import State
from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.monitored import Ranking, monitored_value
from tasks.callbacks.optimizer_averages import OptimizerAverages
from tasks.callbacks.recorder import Recorder
from tasks.callbacks.user_callbacks import state_fault
from tasks.checkpoints import checkpoints
from tasks.modules.evaluation import EvaluatedTask as Task
from tasks.process import ranks
from tasks.process.exit_codes import NotSaved
from xformer_kit.checkpoint import Checkpoint


@dataclass(eq=False)
class CheckpointSaver:
    """Saves the state when it is due, at the end, and when checkpoints.metric has one of its best
    values so far.
    """

    cadence: Cadence
    folder: Path
    constants: State  # fields of the checkpoint that do not change during the run
    recorder: Recorder
    user_callbacks: dict[str, Any]
    averages: Averages | OptimizerAverages | None
    ranking: Ranking
    saved_step: int  # step of the checkpoint that was saved last; -1 if none
    asynchronous: bool = False
    pending: Future[None] | None = None  # that is being written

    def __post_init__(self) -> None:
        self.writer = ThreadPoolExecutor(1) if self.asynchronous else None

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.cadence.saves_at(task.step) and not self.cadence.validates_at(task.step):
            self.save(trainer, task)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not self.cadence.saves_checkpoints:
            return
        step, value = task.step, monitored_value(self.ranking.metric, trainer, task)
        is_best = self.ranking.add(step, value)
        is_due = self.cadence.saves_at(step) or self.cadence.is_last(step)
        if is_best or is_due or self.cadence.checkpoint_every is None:
            self.save(trainer, task)

    def on_exception(self, trainer: Any, task: Task, error: BaseException) -> None:
        """Save the state after the last complete step if another rank was lost, unless the model is
        sharded.

        Only on CPUs: with NCCL, operations after a failed exchange may never return. Nothing is
        saved during an update.
        """
        if not ranks.lost_connection(error) or not trainer.training or not task.step_state.complete:
            return
        if task.is_sharded:
            return
        if trainer.is_global_zero and trainer.strategy.root_device.type == "cpu":
            with suppress(Exception):  # the barrier after the state is written fails as well
                self.save_unless_saved(trainer, task)

    def save_unless_saved(self, trainer: Any, task: Task) -> None:
        """Save the state unless this step is already saved."""
        if self.cadence.saves_checkpoints and self.saved_step != task.step:
            self.save(trainer, task)
        self.finish()

    def save(self, trainer: Any, task: Task) -> None:
        """Save the state after a step. All ranks must call it; rank 0 writes, and all of a sharded
        model.
        """
        clock, strategy = self.recorder.clock, trainer.strategy
        clock.tick()
        self.finish()
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        checkpoint = Checkpoint(
            state_dict=strategy.lightning_module_state_dict(),
            global_step=task.step,
            optimizer=strategy.optimizer_state(trainer.optimizers[0]),
            metric_sums=tuple(task.metric_sums.tolist()),
            best_steps=self.ranking.entries,
            validation=task.validation,
            skipped_steps=int(task.skipped_steps),
            accumulate=task.accumulate,
            spent=self.recorder.spent(task, strategy.root_device),
            metrics_csv=self.recorder.fingerprint(),
            world_size=trainer.world_size,
            average=self.averages.average if self.averages else None,
            stop=self.cadence.stop_state(),
            scaler=scaler and scaler.state_dict(),
            callbacks=self._callback_states(),
            **self.constants,
        )
        place = checkpoints.tensor_folder(self.folder, task.step) if task.is_sharded else None
        place = place and strategy.broadcast(place)
        arguments = place, trainer.is_global_zero, self.ranking.steps, self.ranking.count
        if self.writer is not None:
            checkpoint, group = _copied(checkpoint, strategy, task.is_sharded)
            self.pending = self.writer.submit(self._write, checkpoint, *arguments, group)
        else:
            self._write(checkpoint, *arguments)
            self.recorder.logger.checkpoint(task.step)
        self.saved_step = task.step
        if self.pending is None:
            strategy.barrier()
        clock.resume()

    def _write(
        self,
        checkpoint: Checkpoint,
        place: Path | None,
        is_first: bool,
        best: list[int],
        count: int,
        group: Any = None,
    ) -> None:
        """Writes a checkpoint; in a thread of its own if it is asynchronous. place: of the tensors
        that ranks share. best, count: see `checkpoints.keep`.
        """
        if place is not None:
            checkpoint = checkpoints.write_tensors(checkpoint, place, group)
        if is_first:
            step = checkpoint.global_step
            checkpoints.write(checkpoint, self.folder)
            checkpoints.keep(self.folder, step, best, count, self.cadence.keep_every)

    def finish(self) -> None:
        """Waits for the checkpoint that is being written. Raises NotSaved if it cannot be."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()
            self.recorder.logger.checkpoint(self.saved_step)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self.finish()

    def keep(self, step: int) -> None:
        """Updates the kept checkpoints after last.ckpt was written at `step`, on rank 0."""
        ranking = self.ranking
        checkpoints.keep(self.folder, step, ranking.steps, ranking.count, self.cadence.keep_every)

    def _callback_states(self) -> State | None:
        """Returns the states of the user's callbacks that have one; None without any. Raises
        NotSaved if a state is not plain data.
        """
        states = {}
        for name, callback in self.user_callbacks.items():
            if state := callback.state_dict():
                if fault := state_fault(name, state):
                    raise NotSaved(str(fault))
                states[name] = state
        return states or None


def _copied(checkpoint: Checkpoint, strategy: Any, is_sharded: bool) -> tuple[Checkpoint, Any]:
    """Returns a copy in the host's memory, and the process group of its writers; all ranks must
    call it.
    """
    entries = checkpoint.entries()
    if is_sharded:
        return replace(checkpoint, **strategy.host_copy(entries)), strategy.host_group
    copies = tree_map_only(Tensor, lambda x: x.detach().to("cpu", copy=True), entries)
    return replace(checkpoint, **copies), None
