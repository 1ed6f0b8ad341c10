"""Averages of the weights: exponential moving average, or the mean of the last checkpoints."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks import State
from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.run import checkpoints
from xformer_kit.model.checkpoint import DamagedError, read_weights

log = logging.getLogger("xformer")


@dataclass(eq=False)
class Averages:
    """Puts averaged weights in place of the trained ones for each validation, and for good at the
    end of the run.

    decay: an exponential moving average of the weights of all steps, e <- decay e + (1 - decay) w
    (Polyak and Juditsky, 1992; with decay 0.999 the average of about 1,000 steps). count: at the
    end the mean of the weights of the last so many checkpoints (Vaswani et al., 2017,
    arXiv:1706.03762, section 6.1). Both together are refused by the config's check.
    """

    cadence: Cadence
    folder: Path
    decay: float | None
    count: int
    saved: State | None
    shadow: list[Tensor] = field(default_factory=list)
    average: dict[str, Tensor] | None = None  # what checkpoints save

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.weights = [p.detach() for p in task.model.parameters()]
        self.names = [name for name, _ in task.model.named_parameters()]
        if self.decay is not None:
            begun = [self.saved[name] for name in self.names] if self.saved else self.weights
            self.shadow = [w.clone() for w in self.weights]
            torch._foreach_copy_(self.shadow, begun)
            self.average = self._named(self.shadow)  # always as of the last step
        for file in self._files():  # of steps that are taken again
            if _step(file) > task.step and trainer.is_global_zero:
                file.unlink()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if self.shadow:
            torch._foreach_lerp_(self.shadow, self.weights, 1 - self.decay)
        step, due = task.step, self.cadence.checkpoints(task.step) or self.cadence.ends(task.step)
        if self.count > 1 and due and trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoints.write_file(task.state_dict(), self.folder / f"weights_{step}.pt")
            for file in self._files()[: -self.count]:
                file.unlink()

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.trained: list[Tensor] = []
        if self.shadow:
            self._exchange(self.shadow)
        elif self.count > 1 and self.cadence.ends(task.step):
            trainer.strategy.barrier()
            self._exchange(self._mean())

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        """Restore the trained weights after everything that uses the averaged ones; a checkpoint
        holds both.
        """
        if not self.trained:
            return
        if not self.shadow:
            self.average = self._named([w.clone() for w in self.weights])
        torch._foreach_copy_(self.weights, self.trained)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        # For the test, the sample, and later use.
        if self.average is not None and self.cadence.ends(task.step):
            torch._foreach_copy_(self.weights, [self.average[name] for name in self.names])

    def _exchange(self, others: list[Tensor]) -> None:
        self.trained = [w.clone() for w in self.weights]
        torch._foreach_copy_(self.weights, others)

    def _named(self, tensors: list[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.names, tensors, strict=True))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("weights_*.pt"), key=_step)

    def _mean(self) -> list[Tensor]:
        """The mean of the kept weights, in fp64. A damaged file is named in a line and left out."""
        kept = []
        for file in self._files():
            try:
                kept.append(read_weights(file, self._named(self.weights)))
            except DamagedError as error:
                log.warning("%s is damaged (%s) and is left out of the average.", file, error)
        total = [torch.zeros_like(w, dtype=torch.double) for w in self.weights]
        for state in kept:
            for sum_, name in zip(total, self.names, strict=True):
                sum_ += state[name].to(sum_.device)
        if not kept:
            return self.weights
        pairs = zip(total, self.weights, strict=True)
        return [(sum_ / len(kept)).to(w.dtype) for sum_, w in pairs]


def _step(file: Path) -> int:
    return int(file.stem.rpartition("_")[2])
