"""Whether a run can resume from a checkpoint: its tensors and optimizer state must be those of the
model and the optimizer that the config builds.
"""

from typing import Any

from torch import Tensor
from torch.optim import Adam, Optimizer

from tasks import Facts
from tasks.modules.module import Task
from xformer_kit.checkpoint import Checkpoint, describe_value, number_fault, weights_fault
from xformer_kit.registry import format_value
from xformer_kit.registry.messages import one_line

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")  # of each parameter
PARAMETER_SHAPED = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


def resume_fault(checkpoint: Checkpoint, task: Task) -> str | None:
    """Why a task cannot resume from a checkpoint that `xformer_kit.checkpoint.read` has
    checked; None if it can.
    """
    weights, saved_weights = task.state_dict(), checkpoint.state_dict
    step = checkpoint.global_step
    if step > task.total_steps:
        return (
            f"global_step must be at most the {task.total_steps:,} steps of the run; got {step:,}"
        )
    if fault := weights_fault(saved_weights, weights, "state_dict"):
        return fault
    if unexpected := next((name for name in saved_weights if name not in weights), None):
        return f"state_dict has {unexpected!r}, which the model does not have"
    parameters = dict(task.model.named_parameters())
    average = checkpoint.average
    if average and (fault := weights_fault(average, parameters, "average")):
        return fault
    optimizer, saved = task.configure_optimizers(), checkpoint.optimizer
    if isinstance(optimizer, Adam) and not saved["state"] and checkpoint.skipped_steps < step:
        return (
            f"optimizer.state must have what the optimizer keeps after {step:,} steps; got nothing"
        )
    return _optimizer_fault(saved, optimizer)


def _optimizer_fault(saved: Facts, optimizer: Optimizer) -> str | None:
    """Why an optimizer's step would fail with a saved state, or None. The state is loaded into
    it.
    """
    own_groups = [dict(group) for group in optimizer.param_groups]
    try:
        optimizer.load_state_dict(dict(saved))
    except (ValueError, KeyError, TypeError) as error:
        return f"optimizer cannot be loaded: {one_line(error)}"
    for number, (group, own) in enumerate(zip(optimizer.param_groups, own_groups, strict=True)):
        for name, own_value in own.items():
            value = group.get(name)
            # Torch adds switches that a version did not have.
            is_new_switch = isinstance(own_value, bool) and value is None
            if own_value is not None and not is_new_switch and _type(value) != _type(own_value):
                example = f"as the optimizer writes it, such as {format_value(own_value)}"
                path = f"optimizer.param_groups[{number}].{name}"
                return f"{path} must be {example}; got {describe_value(value)}"
    required = ADAM_STATE if isinstance(optimizer, Adam) else ()
    for number, (parameter, values) in enumerate(optimizer.state.items()):
        path = f"optimizer.state[{number}]"
        if not isinstance(parameter, Tensor):
            return f"{path} is {parameter!r}, which is no parameter of its param_groups"
        if missing := [name for name in required if name not in values]:
            return f"{path} must have {', '.join(required)}; it has no {', '.join(missing)}"
        if "step" in values and (fault := number_fault(values["step"], f"{path}.step")):
            return fault
        shaped = {name: parameter for name in PARAMETER_SHAPED if name in values}
        if fault := weights_fault(values, shaped, path):
            return fault
    return None


def _type(value: Any) -> Any:
    """The type of a setting of a param_group: float for any number, a list of types for a list."""
    if isinstance(value, (list, tuple)):
        return [_type(item) for item in value]
    is_number = isinstance(value, (int, float, Tensor)) and not isinstance(value, bool)
    return float if is_number else type(value)
