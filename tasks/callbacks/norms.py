"""callbacks.norms: norms of activations and gradients per layer, in norms.csv."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.callbacks.cadence import Cadence
from tasks.callbacks.monitored import set_callback_metrics
from tasks.logging.csv_log import CsvLog
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.config.options.callbacks import Norms as Options
from xformer_kit.model.initial_weights import parameter_places


@dataclass(eq=False)
class NormsLog:
    """Writes a row of norms.csv every `options.every` steps. The hooks that it needs are registered
    only during those steps.
    """

    options: Options
    cadence: Cadence
    run_dir: Path
    logger: Any
    writes: bool  # on rank 0
    removals: list[Callable[[], None]] = field(default_factory=list)  # each removes one hook
    squares: dict[str, Any] = field(default_factory=lambda: defaultdict(int))  # sum over tokens
    counts: dict[str, Any] = field(default_factory=lambda: defaultdict(int))  # of tokens
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def on_train_start(self, trainer: Any, task: Task) -> None:
        path = self.run_dir / "norms.csv"
        self.csv = CsvLog(path, ("step",)).open(task.step) if self.writes else None
        self._add_hooks(task)

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        if task.step % self.options.every == 0:
            self.on_train_end(trainer, task)
            self._write(trainer, task.step)
        self._add_hooks(task)

    def on_train_end(self, trainer: Any, task: Task) -> None:
        while self.removals:
            self.removals.pop()()

    def _add_hooks(self, task: Task) -> None:
        """Register the hooks if the next step is due."""
        if self.removals or (task.step + 1) % self.options.every:
            return
        for name in task.model.names:  # type: ignore[union-attr]
            self._add_stack_hooks(name, task.model.get_submodule(name))
        handle = task.register_gradient_hook(
            lambda factor: self.gradients.update(gradient_norms(task.model, factor))
        )
        self.removals.append(handle.remove)

    def _add_stack_hooks(self, name: str, stack: Any) -> None:
        """Register hooks that observe the residual stream after each layer of a stack."""
        real: list[Any] = [None]  # mask of the real tokens of the current forward pass

        def before_forward(module: Any, args: Any) -> None:
            real[0] = args[1].real

        def after_layer(depth: int, state: Any) -> None:
            if stack.training:  # not in a validation
                x = stack.placement.finish(state, lambda x: x)
                self._add_activations(f"{name}.{depth}", x, real[0])

        stack.observers.append(after_layer)
        handle = stack.register_forward_pre_hook(before_forward)
        self.removals += [handle.remove, lambda: stack.observers.remove(after_layer)]

    @torch.no_grad()
    def _add_activations(self, name: str, x: Tensor, real: Tensor | None) -> None:
        square = x.detach().float().square().mean(-1)  # (b, t)
        real = torch.ones_like(square, dtype=torch.bool) if real is None else real
        self.counts[name] += real.expand_as(square).sum()
        self.squares[name] += (square * real).sum()

    def _write(self, trainer: Any, step: int) -> None:
        row = {
            f"activation/{name}": math.sqrt(float(square) / max(1, int(self.counts[name])))
            for name, square in self.squares.items()
        } | {f"gradient/{name}": float(norm) for name, norm in self.gradients.items()}
        for sums in (self.squares, self.counts, self.gradients):
            sums.clear()
        set_callback_metrics(trainer, row)
        if self.csv is not None and row:
            self.csv.add({"step": step} | row)
            self.logger(row, step)


def gradient_norms(model: Any, factor: Tensor) -> dict[str, Tensor]:
    """Returns {layer: norm of the gradient of its parameters, times factor}, by the layer's name:
    decoder.0, ..., embed; parameters that layers share have the name of their stack.
    """
    gradients: dict[str, list[Tensor]] = defaultdict(list)
    places = parameter_places(model)
    for name, child in model.named_children():
        for parameter in child.parameters():
            layer = places[parameter].layer if parameter in places else None
            if parameter.grad is not None:
                gradients[name if layer is None else f"{name}.{layer}"].append(parameter.grad)
    norms = {name: torch.nn.utils.get_total_norm(grads) for name, grads in gradients.items()}
    return {
        name: (norm.full_tensor() if hasattr(norm, "full_tensor") else norm) * factor
        for name, norm in norms.items()
    }
