"""Checks that a checkpoint's tensors and optimizer state are those of the model that the config
builds.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.optim import Adam, Optimizer

from tasks.module import Task
from tasks.types import Facts
from xformer_kit.model.checkpoint import got, number_fault, weights_fault
from xformer_kit.registry import shown

OF_ADAM = ("step", "exp_avg", "exp_avg_sq")  # what it keeps of each parameter
# Tensors in a parameter's shape.
OF_PARAMETER = (
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
)


def misfit(state: Facts, task: Task) -> str | None:
    """Why a task cannot resume from a state that `xformer_kit.model.checkpoint.read` has checked;
    None if it can.
    """
    return next((f"its {fault}" for fault in _faults(state, task)), None)


def _faults(state: Facts, task: Task) -> Iterator[str]:
    if (step := state["global_step"]) > task.total_steps:
        yield f"global_step must be at most the {task.total_steps:,} steps of the run; got {step:,}"
    if fault := weights_fault(state["state_dict"], own := task.state_dict(), "state_dict"):
        yield fault
    if foreign := next((name for name in state["state_dict"] if name not in own), None):
        yield f"state_dict has {foreign!r}, which the model does not have"
    if state.get("average"):
        fault = weights_fault(state["average"], dict(task.model.named_parameters()), "average")
        yield from [fault] if fault else []
    optimizer = task.configure_optimizers()
    if isinstance(optimizer, Adam) and not state["optimizer"]["state"] and state["left_out"] < step:
        yield (
            f"optimizer.state must have what the optimizer keeps after {step:,} steps; got nothing"
        )
    yield from _of_optimizer(state["optimizer"], optimizer)


def _of_optimizer(saved: Facts, optimizer: Optimizer) -> Iterator[str]:
    """Faults of what torch's `load_state_dict` takes and its `step` fails at."""
    fresh = optimizer.state_dict()["param_groups"]
    parameters: dict[Any, Tensor] = {}  # of the keys of the state
    if len(saved["param_groups"]) != len(fresh):
        yield f"optimizer.param_groups must be {len(fresh)}; got {len(saved['param_groups'])}"
        return
    groups = zip(saved["param_groups"], fresh, optimizer.param_groups, strict=True)
    for number, (group, wanted, own) in enumerate(groups):
        place = f"optimizer.param_groups[{number}]"
        if len(group["params"]) != len(wanted["params"]):
            yield (
                f"{place} must have {len(wanted['params'])} parameters; got {len(group['params'])}"
            )
            return
        if odd := next(
            (key for key, value in wanted.items() if not _alike(group.get(key), value)), None
        ):
            yield (
                f"{place}.{odd} must be as the optimizer writes it, such as {shown(wanted[odd])};"
                f" got {got(group.get(odd))}"
            )
            return
        parameters |= dict(zip(map(_key, group["params"]), own["params"], strict=True))
    for key, kept in saved["state"].items():
        if key not in parameters:
            yield f"optimizer.state has {key!r}, which is no parameter of its param_groups"
            return
        place = f"optimizer.state[{key!r}]"
        if isinstance(optimizer, Adam) and (
            missing := [name for name in OF_ADAM if name not in kept]
        ):
            yield f"{place} must have {', '.join(OF_ADAM)}; it has no {', '.join(missing)}"
        if "step" in kept and (fault := number_fault(kept["step"], f"{place}.step")):
            yield fault
        tensors = [name for name in OF_PARAMETER if name in kept]
        fault = weights_fault(kept, dict.fromkeys(tensors, parameters[key]), place)
        yield from [fault] if fault else []


def _key(one: Any) -> Any:
    """Of a parameter in `state`; a list of parameters may hold anything."""
    return one if isinstance(one, (int, str)) else None


def _alike(value: Any, wanted: Any) -> bool:
    """Whether a setting of a param_group has the kind of the one that the optimizer made: a number,
    a text, a list of them. Switches may be missing: torch adds those that came later.
    """
    if wanted is None or isinstance(wanted, bool):
        return wanted is None or value is None or isinstance(value, bool)
    if isinstance(wanted, (int, float, Tensor)):
        return isinstance(value, (int, float, Tensor)) and not isinstance(value, bool)
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(wanted)
            and all(map(_alike, value, wanted))
        )
    return isinstance(value, type(wanted))
