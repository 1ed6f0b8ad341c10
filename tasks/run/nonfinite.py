"""Finds where a value stopped being finite: replays the step and checks each module in turn."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from tasks.module import Task
from tasks.run.exit_codes import DIVERGED, NonFinite
from xformer_kit.data.batch import Batch, map_tensors

NOTHING = "nothing on this rank"


def explain(task: Task, dataset: Any, collate: Any, steps: Any, step: int) -> str:
    """What went wrong after `step` good steps: on which examples, and which module was the first to
    break.
    """
    examples = steps.indices(step)
    batch = map_tensors(collate([dataset[i] for i in examples]), lambda x: x.to(task.device))
    where = first_broken(task, batch, step)
    shown = [str(i % len(dataset)) for i in examples[:8]] + ["..."] * (len(examples) > 8)
    return (
        f"The loss or the gradient of step {step + 1} is not finite. The first to break: {where}. "
        f"Its examples on this rank: {', '.join(shown)}."
    )


def keep(task: Task, checkpoints: Any, step: int) -> str:
    """Save the state after `step` good steps; returns a message on which checkpoint remains. Every
    rank must call it.
    """
    if not checkpoints.cadence.saves:
        return "Nothing is kept: trainer.enable_checkpointing is false."
    # A finite gradient, too large a rate.
    if not all(bool(torch.isfinite(w).all()) for w in task.model.parameters()):
        if checkpoints.saved < 0:
            return "There is no checkpoint before it."
        return f"The last checkpoint is of step {checkpoints.saved}."
    task.rewind(step)
    checkpoints.keep(task.trainer, task)
    return f"The weights before it, of step {step}, are kept in checkpoints/last.ckpt."


def nothing_learned(steps: int) -> NonFinite:
    """The exception at the end of a run of which trainer.on_nonfinite=skip left out every step."""
    which = f"All {steps:,} steps" if steps > 1 else "The only step"
    return NonFinite(
        f"trainer.on_nonfinite: skip left out every step, so the model has learned nothing. {which}"
        f" had a loss or a gradient that is not finite: start a new one with {DIVERGED}",
        1,
    )


def first_broken(task: Task, batch: Batch, step: int) -> str:
    """The name of the first parameter, module output, or gradient that is not finite in a replay of
    a step.
    """
    model = task.model
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name}, already before the step"
    broken: list[str] = []
    hooks = [
        h
        for name, module in model.named_modules()
        for h in _watch(name or "the model", module, broken)
    ]
    model.zero_grad()
    try:
        for micro in range(task.accumulate):
            task.seed_micro_batch(step, micro)
            with task.trainer.precision_plugin.train_step_context():
                loss, count, report = task.objective.loss(model, task.micro_batch(batch, micro))
            loss = loss + report["loss"] * count if "loss" in report else loss
            if not broken and not bool(torch.isfinite(loss)):
                broken.append("the loss")
            with warnings.catch_warnings():
                # Torch's, on hooks of modules whose inputs need no gradient.
                warnings.simplefilter("ignore")
                loss.backward()
            if broken:
                return broken[0]
        bad = [
            name
            for name, p in model.named_parameters()
            if p.grad is not None and not torch.isfinite(p.grad).all()
        ]
        return f"the gradient of {bad[-1]}" if bad else NOTHING
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()


def _watch(name: str, module: nn.Module, broken: list[str]) -> Iterator[RemovableHandle]:
    def watch(what: str, tensors: Any) -> None:
        floats = (
            x for x in tree_leaves(tensors) if isinstance(x, Tensor) and x.is_floating_point()
        )
        if not broken and any(not bool(torch.isfinite(x).all()) for x in floats):
            broken.append(f"{what} {name}")

    forward = lambda _module, _inputs, output: watch("the output of", output)
    backward = lambda _module, gradients, _outputs: watch("the gradient that leaves", gradients)
    yield module.register_forward_hook(forward)
    yield module.register_full_backward_hook(backward)
