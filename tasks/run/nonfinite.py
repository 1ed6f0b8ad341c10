"""Finds the first module whose output or gradient is not finite by replaying the step, and saves
the last finite state.
"""

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from tasks.modules.evaluation import EvaluatedTask
from tasks.process.exit_codes import REMEDIES, RESTART_HINT, NonFinite
from tasks.process.ranks import DataRank, all_gather
from xformer_kit.data.batch import Batch, collate, map_tensors
from xformer_kit.tensors.shards import part

log = logging.getLogger("xformer")
NOT_FOUND = "nothing on this rank"


def nonfinite_error(task: EvaluatedTask, saver: Any, step: int) -> NonFinite:
    """Saves the last finite state and returns the error of the step after `step` completed ones.

    The message has the first module that was not finite, and the examples of one rank. Every rank
    must call it; all return the same error. saver: the run's CheckpointSaver.
    """
    messages = all_gather(_describe_step(task, step), task.trainer.world_size)
    message = next((text for text in messages if NOT_FOUND not in text), messages[0])
    log.info("%s", message)
    saved = _save_finite_state(task, saver, step)
    # A step is a function of the config and its number: a resumed run ends at the same step.
    return NonFinite(f"{message} {saved} {RESTART_HINT}", step + 1)


def all_steps_skipped(steps: int) -> NonFinite:
    """The error at the end of a run with trainer.on_nonfinite=skip that skipped every step."""
    return NonFinite(
        f"trainer.on_nonfinite: skip left out all steps ({steps:,}), whose loss or gradient is not"
        f" finite, so the model has learned nothing: start a new one with {REMEDIES}",
        1,
    )


def _describe_step(task: EvaluatedTask, step: int) -> str:
    """The message on a step: what was not finite first, and the step's examples on this rank."""
    dataset = task.data.examples("train")
    steps = task.data.step_sampler(task.accumulate, *DataRank.of(task.trainer))
    examples = steps.keys(step)
    batch = map_tensors(collate([dataset[i] for i in examples]), lambda x: x.to(task.device))
    numbers = [str(i % len(dataset)) for i in examples[:8]]
    return (
        f"The loss or the gradient of step {step + 1} is not finite. The first to break:"
        f" {_first_nonfinite(task, batch, step)}. Its first examples on this rank:"
        f" {', '.join(numbers)}."
    )


def _save_finite_state(task: EvaluatedTask, saver: Any, step: int) -> str:
    """Saves the state after `step` steps; returns a message on which checkpoint exists."""
    if not saver.cadence.saves_checkpoints:
        return "Nothing is kept: trainer.enable_checkpointing is false."
    # The gradient may have been finite, and the updated weights not.
    is_finite = all(map(_is_finite, task.model.parameters()))
    if not all(all_gather(is_finite, task.trainer.world_size)):
        if saver.saved_step < 0:
            return "There is no checkpoint before it."
        return f"The last checkpoint is of step {saver.saved_step}."
    task.rewind(step)
    saver.save_unless_saved(task.trainer, task)
    return f"The weights before it, of step {step}, are kept in checkpoints/last.ckpt."


def _first_nonfinite(task: EvaluatedTask, batch: Batch, step: int) -> str:
    """The name of the first parameter, module output, or gradient that is not finite in a replay of
    a step, which ends only after its last operation: those of a sharded model need all ranks.
    """
    model, found = task.model, list[str]()
    for name, parameter in model.named_parameters():
        if not _is_finite(parameter):
            found.append(f"the parameter {name}, already before the step")
            break
    hooks = [
        hook
        for name, module in model.named_modules()
        for hook in _register_hooks(name or "the model", module, found)
    ]
    model.zero_grad()
    try:
        for micro in range(task.accumulate):
            task.seed_micro_batch(step, micro)
            with warnings.catch_warnings():
                # Torch warns of backward hooks on modules whose inputs need no gradient, and on
                # sharded ones.
                warnings.simplefilter("ignore")
                loss = task.loss_sum(task.micro_batch(batch, micro))
                if not found and not bool(torch.isfinite(loss)):
                    found.append("the loss")
                if task.is_sharded and micro == task.accumulate - 1:
                    task.trainer.strategy.pre_backward(loss)  # the parts of gradients of all ranks
                loss.backward()
        # Gradients of all micro-batches may add up to a value that is not finite.
        for name, parameter in reversed([*model.named_parameters()]):
            if parameter.grad is not None and not _is_finite(parameter.grad):
                found.append(f"the gradient of {name}")
        return found[0] if found else NOT_FOUND
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()


def _is_finite(value: Tensor) -> bool:
    """Whether this rank's part of a tensor is finite."""
    return bool(torch.isfinite(part(value)).all())


def _register_hooks(name: str, module: nn.Module, found: list[str]) -> Iterator[RemovableHandle]:
    """Registers hooks that append the module's output, or the gradient of its inputs, to an empty
    `found` if it is not finite.
    """

    def check(what: str, tensors: Any) -> None:
        if not found and not all(
            bool(torch.isfinite(x).all())
            for x in tree_leaves(tensors)
            if isinstance(x, Tensor) and x.is_floating_point()
        ):
            found.append(f"{what} {name}")

    forward = lambda _module, _inputs, output: check("the output of", output)
    backward = lambda _module, gradients, _outputs: check("the gradient that leaves", gradients)
    yield module.register_forward_hook(forward)
    yield module.register_full_backward_hook(backward)
