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
    return _groups_fault(saved, optimizer) or _parameters_fault(saved, optimizer)


def _groups_fault(saved: Facts, optimizer: Optimizer) -> str | None:
    """Why the param_groups of a saved state are not those of the optimizer, or None."""
    groups, own_groups = saved["param_groups"], optimizer.state_dict()["param_groups"]
    if len(groups) != len(own_groups):
        return f"optimizer.param_groups must be {len(own_groups)}; got {len(groups)}"
    for number, (group, own_group) in enumerate(zip(groups, own_groups, strict=True)):
        path, count = f"optimizer.param_groups[{number}]", len(own_group["params"])
        if len(group["params"]) != count:
            return f"{path} must have {count} parameters; got {len(group['params'])}"
        for name, own_value in own_group.items():
            value = group.get(name)
            # Torch adds switches that a version did not have.
            is_new_switch = isinstance(own_value, bool) and value is None
            if own_value is not None and not is_new_switch and _type(value) != _type(own_value):
                example = f"as the optimizer writes it, such as {format_value(own_value)}"
                return f"{path}.{name} must be {example}; got {describe_value(value)}"
    return None


def _parameters_fault(saved: Facts, optimizer: Optimizer) -> str | None:
    """Why the optimizer's step would fail with the saved state of a parameter, or None."""
    parameters: dict[Any, Tensor] = {
        key: parameter
        for group, own_group in zip(saved["param_groups"], optimizer.param_groups, strict=True)
        for key, parameter in zip(group["params"], own_group["params"], strict=True)
        if isinstance(key, (int, str))  # a damaged list may hold anything
    }
    required = ADAM_STATE if isinstance(optimizer, Adam) else ()
    for key, values in saved["state"].items():
        if key not in parameters:
            found = describe_value(key)
            return f"optimizer.state has {found}, which is no parameter of its param_groups"
        path = f"optimizer.state[{key!r}]"
        if missing := [name for name in required if name not in values]:
            return f"{path} must have {', '.join(required)}; it has no {', '.join(missing)}"
        if "step" in values and (fault := number_fault(values["step"], f"{path}.step")):
            return fault
        shaped = {name: parameters[key] for name in PARAMETER_SHAPED if name in values}
        if fault := weights_fault(values, shaped, path):
            return fault
    return None


def _type(value: Any) -> Any:
    """The type of a setting of a param_group: float for any number, a list of types for a list."""
    if isinstance(value, (list, tuple)):
        return [_type(item) for item in value]
    is_number = isinstance(value, (int, float, Tensor)) and not isinstance(value, bool)
    return float if is_number else type(value)
