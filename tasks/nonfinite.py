"""Where did a value stop being finite? Replay the step that went wrong, and ask each module in turn."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from tasks.endings import NonFinite
from tasks.module import Task
from xformer_kit.data.batch import Batch, mapped

NOTHING = "nothing on this rank"


def explain(task: Task, dataset: Any, collate: Any, steps: Any, step: int) -> NonFinite:
    """The exception for a step: which it was, on which examples, and which module was the first to break."""
    examples = steps.of(step)
    batch = mapped(collate([dataset[i] for i in examples]), lambda x: x.to(task.device))
    kept, task.step = task.step, step
    try:
        where = first_broken(task, batch)
    finally:
        task.step = kept
    shown = ", ".join(str(i % len(dataset)) for i in examples[:8]) + (", ..." if len(examples) > 8 else "")
    return NonFinite(
        f"The loss or the gradient of step {step} is not finite. The first to break: {where}. "
        f"Its examples on this rank: {shown}. The weights are those before the step, and the last checkpoint is kept. "
        "Try a lower optim.lr, a longer schedule.warmup, trainer.gradient_clip_val, or trainer.precision=32-true."
    )


def first_broken(task: Task, batch: Batch) -> str:
    """The name of the first parameter, module output, or gradient that is not finite in a replay of a step."""
    model = task.model
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name}, already before the step"
    broken: list[str] = []
    hooks = [h for name, module in model.named_modules() for h in _watch(name or "the model", module, broken)]
    model.zero_grad()
    try:
        for micro in range(task.accumulate):
            task.seed_micro_batch(micro)
            with task.trainer.precision_plugin.train_step_context():
                loss, _, report = task.objective.loss(model, task.part(batch, micro))
            loss = sum(report.values(), loss) if set(report) == {"loss"} else loss
            if not broken and not bool(torch.isfinite(loss)):
                broken.append("the loss")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, on hooks of modules whose inputs need no gradient
                loss.backward()
            if broken:
                return broken[0]
        bad = [name for name, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
        return f"the gradient of {bad[-1]}" if bad else NOTHING
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()


def _watch(name: str, module: nn.Module, broken: list[str]):
    def forward(_module, _inputs, output):
        if not broken and any(not bool(torch.isfinite(x).all()) for x in _floats(output)):
            broken.append(f"the output of {name}")

    def backward(_module, gradients, _outputs):
        if not broken and any(not bool(torch.isfinite(x).all()) for x in _floats(gradients)):
            broken.append(f"the gradient that leaves {name}")

    return module.register_forward_hook(forward), module.register_full_backward_hook(backward)


def _floats(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in _floats(item)]
