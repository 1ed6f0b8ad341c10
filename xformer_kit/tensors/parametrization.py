"""muP: which axes of a parameter grow with the width of a model."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from xformer_kit.tensors.parameters import ParameterInfo, canonical, parameter_table

# Axes whose size is a multiple of model.dim, also as a factor of an axis such as heads*head_dim.
WIDTHS = {"dim", "embed_dim", "width", "heads", "kv_heads", "v_heads", "head_dim", "v_head_dim"}


def grows(axis: str) -> bool:
    """Whether an axis grows with the width."""
    return not WIDTHS.isdisjoint(axis.split("*"))


def input_ratio(info: ParameterInfo, ratio: float) -> float:
    """Returns the factor by which the inputs of a hidden matrix are more than at the base width;
    `ratio` is dim / base_dim. 1 for other parameters. A matrix needs its axes.
    """
    if info.role != "hidden" or ratio == 1.0 or info.axes is None or len(info.axes) < 2:
        return 1.0
    return ratio if grows(info.axes[-1]) else 1.0


def base_shape(info: ParameterInfo, shape: tuple[int, ...], ratio: float) -> tuple[int, ...]:
    """Returns the shape of a parameter at the base width."""
    if ratio == 1.0 or info.axes is None or len(info.axes) != len(shape):
        return shape
    sizes = zip(info.axes, shape, strict=True)
    return tuple(max(1, round(n / ratio)) if grows(axis) else n for axis, n in sizes)


def input_ratios(model: Any) -> Mapping[nn.Parameter, float]:
    """Returns `input_ratio` of each parameter of a model with muP; {} without it."""
    if (ratio := vars(model).get("width_ratio", 1.0)) == 1.0:
        return {}
    table = parameter_table(model)
    named = model.named_parameters()
    return {p: input_ratio(table[canonical(name)], ratio) for name, p in named}


def unstated(model: nn.Module) -> list[str]:
    """Returns the names of parameters with two or more axes whose axes no module states."""
    table = parameter_table(model)
    named = ((canonical(name), p) for name, p in model.named_parameters())
    return [name for name, p in named if p.ndim >= 2 and table[name].axes is None]
