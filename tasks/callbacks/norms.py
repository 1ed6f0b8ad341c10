"""Norms of activations and gradients per layer: a row of norms.csv every so many steps."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.csv_log import CsvLog
from xformer_kit.config.callbacks import Norms as Options


@dataclass(eq=False)
class NormsLog:
    """Registers hooks for the steps that are recorded, and for no others."""

    options: Options
    cadence: Cadence
    run_dir: Path
    logger: Any
    first: bool
    undo: list[Callable[[], None]] = field(default_factory=list)  # of what the hooks are
    squares: dict[str, Any] = field(default_factory=lambda: defaultdict(int))
    counts: dict[str, Any] = field(default_factory=lambda: defaultdict(int))
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def on_train_start(self, trainer: Any, task: Task) -> None:
        path = self.run_dir / "norms.csv"
        self.records = CsvLog(path, ("step",)).open(task.step) if self.first else None
        self._listen(task)

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.options.every == 0:
            self.on_train_end(trainer, task)
            self._write(task.step)
        self._listen(task)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        while self.undo:
            self.undo.pop()()

    def _listen(self, task: Task) -> None:
        """Where the next step is due."""
        if self.undo or (task.step + 1) % self.options.every:
            return
        for name in task.model.names:  # type: ignore[union-attr]
            self._listen_to(name, task.model.get_submodule(name))
        handle = task.register_gradient_hook(
            lambda factor: self.gradients.update(gradients(task.model, factor))
        )
        self.undo.append(handle.remove)

    def _listen_to(self, name: str, stack: Any) -> None:
        """Observes the residual stream after each layer of a stack."""
        real: list[Any] = [None]

        def begins(module: Any, args: Any) -> None:
            real[0] = args[1].real

        def observe(depth: int, state: Any) -> None:
            if stack.training:  # no validation between two steps
                x = stack.placement.finish(state, lambda x: x)
                self._add(f"{name}.{depth}", x, real[0])

        stack.observers.append(observe)
        handle = stack.register_forward_pre_hook(begins)
        self.undo += [handle.remove, lambda: stack.observers.remove(observe)]

    @torch.no_grad()
    def _add(self, name: str, x: Tensor, real: Tensor | None) -> None:
        square = x.detach().float().square().mean(-1)  # (b, t)
        real = torch.ones_like(square, dtype=torch.bool) if real is None else real
        self.counts[name] += real.expand_as(square).sum()
        self.squares[name] += (square * real).sum()

    def _write(self, step: int) -> None:
        row = {
            f"activation/{name}": math.sqrt(float(square) / max(1, int(self.counts[name])))
            for name, square in self.squares.items()
        } | {f"gradient/{name}": float(value) for name, value in self.gradients.items()}
        for sums in (self.squares, self.counts, self.gradients):
            sums.clear()
        if self.records is not None and row:
            self.records.add({"step": step} | row)
            self.logger(row, step)


def gradients(model: Any, factor: Tensor) -> dict[str, Tensor]:
    """The norm of the gradient of each layer's parameters, times a factor, by the layer's name:
    decoder.0, ..., embed; what layers share has the name of its stack.
    """
    groups: dict[str, list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            top, _, rest = name.partition(".")
            at = rest.partition(".")[0]
            groups[f"{top}.{at}" if at.isdigit() else top].append(parameter.grad)
    norms = {name: torch.nn.utils.get_total_norm(grads) for name, grads in groups.items()}
    return {
        name: (norm.full_tensor() if hasattr(norm, "full_tensor") else norm) * factor
        for name, norm in norms.items()
    }
