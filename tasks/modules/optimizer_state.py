"""The saved state of an optimizer, whose tensors are whole, and that of a sharded model."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from tasks import Facts
from xformer_kit.tensors.shards import part_like


def load_optimizer(optimizer: Optimizer, saved: Facts) -> None:
    """Loads a state. Tensors in the shape of their parameter are divided as it is."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        number: {name: _part(value, parameters[number]) for name, value in values.items()}
        for number, values in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})


def _part(value: Any, parameter: Tensor) -> Any:
    is_shaped = isinstance(value, Tensor) and value.shape == parameter.shape
    return part_like(value, parameter) if is_shaped else value
