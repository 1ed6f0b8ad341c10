"""Norms of activations and gradients per layer: a row of norms.csv every so many steps."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.csv_log import CsvLog
from tasks.types import State
from xformer_kit.config.callbacks import Norms as Options


class NormsLog:
    """Registers hooks for the steps that are recorded, and for no others."""

    def __init__(self, options: Options, cadence: Cadence, run_dir: Path, tell: Any, first: bool):
        self.every = options.every
        self.path = run_dir / "norms.csv"
        self.tell = tell
        self.first = first
        self.handles: list[Any] = []
        self.observed: list[Any] = []
        self.squares: dict[str, Tensor] = {}
        self.counts: State = defaultdict(int)
        self.gradients: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.records = CsvLog(self.path, ("step",)).open(task.step) if self.first else None
        self._listen(task)

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.every == 0:
            self._silence(task)
            self._write(task.step)
        self._listen(task)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self._silence(task)

    def _listen(self, task: Task) -> None:
        """Where the next step is due."""
        if self.handles or (task.step + 1) % self.every:
            return
        for name in task.model.names:  # type: ignore[union-attr]
            self._listen_to(name, task.model.get_submodule(name))
        task.gradient_hooks.append(
            lambda factor: self.gradients.update(gradients(task.model, factor))
        )

    def _listen_to(self, name: str, stack: Any) -> None:
        """Observes the residual stream after each layer of a stack."""
        real: list[Any] = [None]

        def begins(module: Any, args: Any) -> None:
            real[0] = args[1].real

        def observe(depth: int, state: Any) -> None:
            x = stack.placement.finish(state, lambda x: x)
            self._add(f"{name}.{depth}", x, real[0], stack.training)

        self.handles.append(stack.register_forward_pre_hook(begins))
        stack.observers.append(observe)
        self.observed.append((stack, observe))

    def _add(self, name: str, x: Tensor, real: Tensor | None, training: bool) -> None:
        if not training:  # a validation between two steps
            return
        with torch.no_grad():
            square = x.detach().float().square().mean(-1)  # (b, t)
            if real is None:
                self.counts[name] += square.numel()
            else:
                square, self.counts[name] = (
                    square * real,
                    self.counts[name] + real.expand_as(square).sum(),
                )
            self.squares[name] = self.squares.get(name, 0) + square.sum()

    def _silence(self, task: Task) -> None:
        for handle in self.handles:
            handle.remove()
        for stack, observe in self.observed:
            stack.observers.remove(observe)
        self.handles = []
        self.observed = []
        task.gradient_hooks.clear()

    def _write(self, step: int) -> None:
        of = {
            f"activation/{n}": math.sqrt(float(s) / max(1, int(self.counts[n])))
            for n, s in self.squares.items()
        }
        row = of | {f"gradient/{name}": float(value) for name, value in self.gradients.items()}
        self.squares, self.counts, self.gradients = {}, defaultdict(int), {}
        if self.records is not None and row:
            self.records.add({"step": step} | row)
            self.tell(row, step)


def gradients(model: Any, factor: Tensor) -> dict[str, Tensor]:
    """The norm of the gradient of each layer's parameters, times a factor, by the layer's name:
    decoder.0, ..., embed; what layers share has the name of its stack.
    """
    groups: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            top, _, rest = name.partition(".")
            at = rest.partition(".")[0]
            groups.setdefault(f"{top}.{at}" if at.isdigit() else top, []).append(parameter.grad)
    norms = {name: torch.nn.utils.get_total_norm(grads) for name, grads in groups.items()}
    whole = {
        name: norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        for name, norm in norms.items()
    }
    return {name: norm * factor for name, norm in whole.items()}
