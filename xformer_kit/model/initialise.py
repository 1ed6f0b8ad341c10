"""The initial weights of a model: a pure function of seed, canonical parameter name and shape.

Adding or replacing a component therefore does not change the initial weights of the other
parameters. Numbers are drawn on the CPU in fp32, for every device and dtype of the model.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from xformer_kit.model.init import Init, Matrix

WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.", "module.")


def canonical(name: str) -> str:
    """A parameter's name without the prefixes of wrappers (torch.compile, checkpointing, FSDP)."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def generator(seed: int, name: str) -> torch.Generator:
    """The random generator for the initial value of a parameter."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def residual_names(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[str]:
    """Names of the matrices that write to the residual stream, from a model's named_modules()."""
    for path, module in modules:
        name = getattr(module, "residual", "")
        if name and hasattr(module, name):
            yield f"{path}.{name}.weight"


@torch.no_grad()
def initialise(model: Any, seed: int, init: Init) -> None:
    """Draws matrices from N(0, init.std(matrix)^2) and sets biases to zero, in place. Other
    parameters (weights of norms, ...) stay as constructed.

    A module's method `initial(name, shape, generator) -> Tensor | None` takes precedence for its
    own parameters, unless it returns None.
    """
    modules = dict(model.named_modules())
    writes = _residual_writes(modules)
    gains = placement_gains(model)
    owned = list(owned_parameters(modules))
    gates = (name for name, _, _ in owned if name.endswith(".gate.weight"))
    gated = {f"{name.removesuffix('.gate.weight')}.up.weight" for name in gates}
    for name, parameter, owner in owned:
        shape = tuple(parameter.shape)
        initial = getattr(owner, "initial", None)
        value = initial and initial(name.rsplit(".", 1)[-1], shape, generator(seed, name))
        if value is None and parameter.ndim >= 2:
            looked_up = isinstance(owner, nn.Embedding) or getattr(owner, "looked_up", False)
            more = writes.get(name, 0), gains.get(name, 1.0), name in gated
            value = init.draw(Matrix(name, shape, looked_up, *more), generator(seed, name))
        elif value is None and name.endswith("bias"):
            value = torch.zeros(shape)
        if value is not None:
            parameter.copy_(value)


def owned_parameters(
    modules: Mapping[str, nn.Module],
) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """Yields every parameter once: canonical name, parameter and its module. It takes the modules
    of `named_modules()`, so that building a model traverses them once.
    """
    seen: set[int] = set()
    for path, module in modules.items():
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield canonical(f"{path}.{key}" if path else key), parameter, module


def _residual_writes(modules: Mapping[str, nn.Module]) -> dict[str, int]:
    """Name of a matrix that writes to the residual stream -> number of writes to the stream of its
    stack. A block that several layers share counts once per layer, a block of an extra not at all.
    """
    num_calls: dict[str, Any] = {
        path: module.num_calls for path, module in modules.items() if hasattr(module, "num_calls")
    }
    stacks: dict[str, str] = {}
    writes: Counter[str] = Counter()  # by stack
    for name in residual_names(modules.items()):
        stacks[name] = stack = name.split(".", 1)[0]
        calls = (n for path, n in num_calls.items() if name.startswith(f"{path}."))
        writes[stack] += next(calls, 1)
    return {name: writes[stack] for name, stack in stacks.items()}


def placement_gains(model: Any) -> dict[str, float]:
    """Parameter name -> factor on its initial standard deviation, from the placements' `gains`."""
    gains: dict[str, float] = {}
    for stack in model.names:
        for path, block in model.get_submodule(stack).named_blocks.items():
            for names, placement in zip(
                block.sublayer_groups, block.placement.values(), strict=True
            ):
                for matrix, gain in placement.gains().items():
                    gains |= {
                        f"{stack}.{path}.{sublayer}.{parameter}": gain
                        for sublayer in names
                        for parameter, _ in getattr(block, sublayer).named_parameters()
                        if f".{parameter}".endswith(f".{matrix}.weight")  # also of an expert
                    }
    return gains
