"""Where the parameters of a model are: the stack, the layer, and its placement."""

from typing import Any, NamedTuple

from torch import nn


class Place(NamedTuple):
    """Where a parameter is.

    stack: name of its stack; empty outside of stacks. layer: index of its block; None outside of
    the stack's own blocks. calls: number of layers that use its block. gain: factor of the
    placement on the standard deviation of matrices with `values`.
    """

    stack: str = ""
    layer: int | None = None
    calls: int = 1
    gain: float = 1.0


def parameter_places(model: Any) -> dict[nn.Parameter, Place]:
    """Returns where each parameter of a stack is. A block that several layers share counts once per
    layer, a block of an extra not at all.
    """
    places: dict[nn.Parameter, Place] = {}
    for name in model.names:
        stack = model.get_submodule(name)
        places |= dict.fromkeys(stack.parameters(), Place(name))
        layers = {block: layer for layer, block in enumerate(stack.blocks)}
        for block in stack.named_blocks.values():
            place = Place(name, layers.get(block), block.num_calls)
            places |= dict.fromkeys(block.parameters(), place)
            for names, placement in zip(
                block.sublayer_groups, block.placement.values(), strict=True
            ):
                for parameter in (p for sub in names for p in getattr(block, sub).parameters()):
                    places[parameter] = place._replace(gain=placement.value_gain)
    return places
