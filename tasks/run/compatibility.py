"""Checks that a checkpoint's tensors and optimizer state are those of the model that the config
builds.
"""

from typing import Any

from torch import Tensor
from torch.optim import Adam, Optimizer

from tasks import Facts
from tasks.module import Task
from xformer_kit.model.checkpoint import describe_value, number_fault, weights_fault
from xformer_kit.registry import format_value

OF_ADAM = ("step", "exp_avg", "exp_avg_sq")  # what it keeps of each parameter
# Tensors in a parameter's shape.
OF_PARAMETER = (
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
)


def resume_fault(state: Facts, task: Task) -> str | None:
    """Why a task cannot resume from a state that `xformer_kit.model.checkpoint.read` has checked;
    None if it can.
    """
    fault = _fault(state, task)
    return fault and f"its {fault}"


def _fault(state: Facts, task: Task) -> str | None:
    own, saved, step = task.state_dict(), state["state_dict"], state["global_step"]
    if step > task.total_steps:
        most = f"{task.total_steps:,} steps of the run"
        return f"global_step must be at most the {most}; got {step:,}"
    if fault := weights_fault(saved, own, "state_dict"):
        return fault
    if foreign := next((name for name in saved if name not in own), None):
        return f"state_dict has {foreign!r}, which the model does not have"
    trained = dict(task.model.named_parameters())
    if state.get("average") and (fault := weights_fault(state["average"], trained, "average")):
        return fault
    optimizer = task.configure_optimizers()
    if isinstance(optimizer, Adam) and not state["optimizer"]["state"] and state["left_out"] < step:
        return (
            f"optimizer.state must have what the optimizer keeps after {step:,} steps; got nothing"
        )
    return _fault_of_optimizer(state["optimizer"], optimizer)


def _fault_of_optimizer(saved: Facts, optimizer: Optimizer) -> str | None:
    """What of a state torch's `load_state_dict` takes and its `step` fails at."""
    fresh, groups = optimizer.state_dict()["param_groups"], saved["param_groups"]
    if len(groups) != len(fresh):
        return f"optimizer.param_groups must be {len(fresh)}; got {len(groups)}"
    parameters: dict[Any, Tensor] = {}  # of the keys of the state
    for number, (group, wanted) in enumerate(zip(groups, fresh, strict=True)):
        place, many = f"optimizer.param_groups[{number}]", len(wanted["params"])
        if len(group["params"]) != many:
            return f"{place} must have {many} parameters; got {len(group['params'])}"
        for key, value in wanted.items():
            if not _alike(group.get(key), value):
                like = f"as the optimizer writes it, such as {format_value(value)}"
                return f"{place}.{key} must be {like}; got {describe_value(group.get(key))}"
        own = optimizer.param_groups[number]["params"]
        parameters |= dict(zip(map(_key, group["params"]), own, strict=True))
    needed = OF_ADAM if isinstance(optimizer, Adam) else ()
    for key, kept in saved["state"].items():
        if key not in parameters:
            return f"optimizer.state has {key!r}, which is no parameter of its param_groups"
        place = f"optimizer.state[{key!r}]"
        if missing := [name for name in needed if name not in kept]:
            return f"{place} must have {', '.join(needed)}; it has no {', '.join(missing)}"
        if "step" in kept and (fault := number_fault(kept["step"], f"{place}.step")):
            return fault
        shaped = {name: parameters[key] for name in OF_PARAMETER if name in kept}
        if fault := weights_fault(kept, shaped, place):
            return fault
    return None


def _key(one: Any) -> Any:
    """Of a parameter in `state`; a list of parameters may hold anything."""
    return one if isinstance(one, (int, str)) else None


def _alike(value: Any, wanted: Any) -> bool:
    """Whether a setting of a param_group has the kind of the one that the optimizer made: a number,
    a text, a list of them. Switches may be missing: torch adds those that came later.
    """
    missing = isinstance(wanted, bool) and value is None
    return wanted is None or missing or _kind(value) == _kind(wanted)


def _kind(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_kind(item) for item in value]
    number = isinstance(value, (int, float, Tensor)) and not isinstance(value, bool)
    return float if number else type(value)
