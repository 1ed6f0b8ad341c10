"""muP: which axes of a parameter grow with the width of a model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from xformer_kit.tensors.parameters import ParameterInfo, canonical, parameter_table

# Axes whose size is a multiple of model.dim, also as a factor of an axis such as heads*head_dim.
WIDTHS = {
    *("dim", "embed_dim", "width"),
    *("heads", "kv_heads", "v_heads", "head_dim", "v_head_dim", "rope_head_dim"),
    *("q_rank", "kv_rank"),
}


class Growth(NamedTuple):
    """Factors by which a hidden matrix has more outputs and inputs than at the base width."""

    outputs: float = 1.0
    inputs: float = 1.0

    @property
    def initial(self) -> float:
        """Factor on the initial standard deviation: inputs^-1/2, or inputs^-1 if only the inputs
        grow, as for the output weights of the paper.
        """
        return self.inputs**-0.5 * min(1.0, self.outputs / self.inputs) ** 0.5


def grows(axis: str) -> bool:
    """Whether an axis grows with the width."""
    return not WIDTHS.isdisjoint(axis.split("*"))


def growth(info: ParameterInfo, ratio: float) -> Growth:
    """Returns the growth of a parameter; `ratio` is dim / base_dim. (1, 1) if it is no hidden
    matrix. A matrix needs its axes.

    A bias of logits is divided by the ratio with them: as if it had so many fewer inputs.
    """
    if info.bias and info.axes == ("vocab",):
        return Growth(inputs=1 / ratio)
    if info.role != "hidden" or ratio == 1.0 or info.axes is None or len(info.axes) < 2:
        return Growth()
    outputs, inputs = (ratio if grows(axis) else 1.0 for axis in info.axes[-2:])
    return Growth(outputs, inputs)


def base_shape(info: ParameterInfo, shape: tuple[int, ...], ratio: float) -> tuple[int, ...]:
    """Returns the shape of a parameter at the base width."""
    if ratio == 1.0 or info.axes is None or len(info.axes) != len(shape):
        return shape
    sizes = zip(info.axes, shape, strict=True)
    return tuple(max(1, round(n / ratio)) if grows(axis) else n for axis, n in sizes)


def growths(model: Any) -> Mapping[nn.Parameter, Growth]:
    """Returns the growth of each parameter of a model with muP; {} without it."""
    if (ratio := vars(model).get("width_ratio", 1.0)) == 1.0:
        return {}
    table = parameter_table(model)
    named = model.named_parameters()
    return {p: growth(table[canonical(name)], ratio) for name, p in named}


def unstated(model: nn.Module) -> list[str]:
    """Returns the names of parameters with two or more axes whose axes no module states."""
    table = parameter_table(model)
    named = ((canonical(name), p) for name, p in model.named_parameters())
    return [name for name, p in named if p.ndim >= 2 and table[name].axes is None]
