"""Averages of the weights that the optimizer itself computes, as schedule-free ones do."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tasks.callbacks.cadence import Cadence
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.tensors.shards import part


@dataclass(eq=False)
class OptimizerAverages:
    """Calls the optimizer's `eval()` before each validation and after the last step, which replaces
    the trained weights by averaged ones, and `train()` after it.

    The trained weights are copied and restored, so that a validation does not change a run by
    rounding.
    """

    cadence: Cadence
    parameters: dict[str, Tensor] = field(default_factory=dict)
    weights: list[Tensor] = field(default_factory=list)  # this rank's parts; share their memory
    trained: list[Tensor] = field(default_factory=list)
    optimizer: Any = None

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.optimizer = trainer.optimizers[0]
        self.parameters = {name: p.detach() for name, p in task.model.named_parameters()}
        self.weights = [part(p) for p in self.parameters.values()]

    @property
    def average(self) -> dict[str, Tensor]:
        """The averaged weights, which a checkpoint holds next to the trained ones."""
        self._average()
        found = {name: p.clone() for name, p in self.parameters.items()}
        self._restore()
        return found

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self._average()

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        self._restore()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        """Keep the averaged weights for the test, the sample, and later use."""
        if self.cadence.is_last(task.step):
            self._average()

    def _average(self) -> None:
        self.trained = [w.clone() for w in self.weights]
        self.optimizer.eval()

    def _restore(self) -> None:
        self.optimizer.train()
        torch._foreach_copy_(self.weights, self.trained)
