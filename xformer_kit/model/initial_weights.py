"""The initial weights of a model: a pure function of seed, canonical parameter name and shape.

Adding or replacing a component therefore does not change the initial weights of the other
parameters. Numbers are drawn on the CPU in fp32, for every device and dtype of the model.
"""

import hashlib
from collections import Counter
from typing import Any

import torch

from xformer_kit.model.init_distributions import Init, Matrix
from xformer_kit.tensors import owned_parameters, parameter_table
from xformer_kit.tensors.parameter_places import Place, parameter_places
from xformer_kit.tensors.parametrization import base_shape, growth


def generator(seed: int, name: str) -> torch.Generator:
    """The random generator for the initial value of a parameter."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


@torch.no_grad()
def initialise(model: Any, seed: int, init: Init) -> None:
    """Draws matrices from N(0, init.std(matrix)^2) and sets biases to zero, in place. Other
    parameters (weights of norms, ...) stay as constructed.

    With muP the standard deviation is that at the base width, for hidden matrices times a factor
    of their growth (Yang et al., 2022, arXiv:2203.03466, table 3).

    A module's method `initial(name, shape, generator) -> Tensor | None` takes precedence for its
    own parameters, unless it returns None.
    """
    table, places = parameter_table(model), parameter_places(model)
    owned = list(owned_parameters(dict(model.named_modules())))
    writes: Counter[str] = Counter()  # to the residual stream of each stack
    for own in owned:
        place = places.get(own.parameter, Place())
        writes[place.stack] += place.calls * table[own.name].writes
    for own in owned:
        if own.parameter.is_meta:
            continue
        info, place = table[own.name], places.get(own.parameter, Place())
        draw, shape = generator(seed, own.name), tuple(own.parameter.shape)
        initial = getattr(own.module, "initial", None)
        value = initial and initial(own.key, shape, draw)
        if value is None and info.bias:
            value = torch.zeros(shape)
        elif value is None and own.parameter.ndim >= 2:
            number, gain = (
                info.writes * writes[place.stack],
                place.gain if info.scales_output else 1.0,
            )
            gain *= growth(info, model.width_ratio).initial
            at_base = base_shape(info, shape, model.width_ratio)
            place_in = place.stack, place.layer
            matrix = Matrix(own.name, shape, info, number, gain, *place_in, at_base)
            value = init.draw(matrix, draw)
        if value is not None:
            own.parameter.copy_(value)
