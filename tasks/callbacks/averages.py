"""Averages of the weights: an exponential moving average, or the mean of the last checkpoints."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks import State
from tasks.callbacks.cadence import Cadence
from tasks.checkpoints import checkpoints
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.checkpoint import DamagedError, read_weights
from xformer_kit.checkpoint_shards import parts_like
from xformer_kit.tensors.shards import part

log = logging.getLogger("xformer")


@dataclass(eq=False)
class Averages:
    """Replaces the trained weights by averaged ones during each validation, and after the last
    step.

    decay: an exponential moving average of the weights of all steps, e <- decay e + (1 - decay) w
    (Polyak and Juditsky, 1992; with decay 0.999 the average of about 1,000 steps). count: at the
    end, the mean of the weights of the last `count` checkpoints (Vaswani et al., 2017,
    arXiv:1706.03762, section 6.1). The config's check refuses both together.
    """

    cadence: Cadence
    folder: Path  # of checkpoints
    decay: float | None
    count: int
    saved: State | None  # `average` of the checkpoint to resume from
    moving_average: list[Tensor] = field(default_factory=list)  # empty without `decay`
    average: dict[str, Tensor] | None = None  # is saved in checkpoints

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.parameters = {name: p.detach() for name, p in task.model.named_parameters()}
        self.weights = [part(p) for p in self.parameters.values()]  # share their memory
        if self.decay is not None:
            self.average = {name: p.clone() for name, p in self.parameters.items()}
            self.moving_average = [part(tensor) for tensor in self.average.values()]
            if self.saved:
                torch._foreach_copy_(self.moving_average, self._parts(self.saved))
        if trainer.is_global_zero:
            for file in self._files():
                step = _step(file)
                # That step is repeated, or the run ended there before it was prolonged.
                is_former_end = step < self.cadence.total and not self.cadence.saves_at(step)
                if step > task.step or is_former_end:
                    file.unlink()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.moving_average:
            torch._foreach_lerp_(self.moving_average, self.weights, 1 - self.decay)
        step = task.step
        is_due = self.cadence.saves_at(step) or self.cadence.is_last(step)
        if self.count > 1 and is_due:
            state = task.whole_state()
            if trainer.is_global_zero:
                self.folder.mkdir(parents=True, exist_ok=True)
                checkpoints.write_file(state, self.folder / f"weights_{step}.pt")
                for file in self._files()[: -self.count]:
                    file.unlink()

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.trained: list[Tensor] = []
        if self.moving_average:
            self._replace_weights(self.moving_average)
        elif self.count > 1 and self.cadence.is_last(task.step):
            trainer.strategy.barrier()
            self._replace_weights(self._mean_of_checkpoints())

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        """Restore the trained weights; the checkpoint that is saved next contains both."""
        if not self.trained:
            return
        if not self.moving_average:
            self.average = {name: p.clone() for name, p in self.parameters.items()}
        torch._foreach_copy_(self.weights, self.trained)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        """Keep the averaged weights for the test, the sample, and later use."""
        if self.average is not None and self.cadence.is_last(task.step):
            torch._foreach_copy_(self.weights, [part(tensor) for tensor in self.average.values()])

    def _replace_weights(self, weights: list[Tensor]) -> None:
        self.trained = [w.clone() for w in self.weights]
        torch._foreach_copy_(self.weights, weights)

    def _parts(self, state: State) -> list[Tensor]:
        """This rank's parts of whole tensors, in the order of the parameters."""
        values = {name: state[name] for name in self.parameters}
        return list(map(part, parts_like(values, self.parameters).values()))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("weights_*.pt"), key=_step)

    def _mean_of_checkpoints(self) -> list[Tensor]:
        """Returns the mean of the saved weights, computed in fp64, without damaged files, for which
        a warning is logged; the current weights if there is no file.
        """
        states = []
        for file in self._files():
            try:
                states.append(read_weights(file, self.parameters))
            except DamagedError as error:
                log.warning("%s is damaged (%s) and is left out of the average.", file, error)
        if not states:
            return self.weights
        means = {}
        for name, p in self.parameters.items():
            total: Any = sum(state[name].to(p.device, torch.double) for state in states)
            means[name] = (total / len(states)).to(p.dtype)
        return self._parts(means)


def _step(file: Path) -> int:
    return int(file.stem.rpartition("_")[2])
