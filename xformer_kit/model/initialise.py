"""The initial weights of a model, a pure function of (seed, canonical name, shape).

So a component that is added or replaced leaves the start of every other parameter as it was. Draws
are made on the CPU in fp32, for every device and dtype of the model.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.model.init import Init, Matrix

WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.", "module.")


def canonical(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    for wrapper in WRAPPERS:
        name = (
            name.replace(wrapper, "")
            if not name.startswith(wrapper)
            else name[len(wrapper) :].replace(wrapper, "")
        )
    return name


def generator(seed: int, name: str) -> torch.Generator:
    """The source of a parameter's draw."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def residual_names(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[str]:
    """Every matrix that writes to the residual stream, of a model's `named_modules()`."""
    for path, module in modules:
        name = getattr(module, "residual", "")
        if name and hasattr(module, name):
            yield f"{path}.{name}.weight"


@torch.no_grad()
def initialise(model: Any, seed: int, init: Init) -> None:
    """Matrices N(0, init.std(matrix)^2), biases zero; what else a component holds (the weights of
    norms, ...) stays as it was constructed.

    A module's method `initial(name, shape, generator) -> Tensor | None` answers first for its own
    parameters.
    """
    modules = dict(model.named_modules())
    writes = _writes(modules)
    gains = placement_gains(model)
    owned = list(owned_parameters(modules))
    gates = (name for name, _, _ in owned if name.endswith(".gate.weight"))
    gated = {f"{name.removesuffix('.gate.weight')}.up.weight" for name in gates}
    for name, parameter, owner in owned:
        start = _own(owner, name, parameter, seed)
        if start is None and parameter.ndim >= 2:
            looked_up = isinstance(owner, nn.Embedding) or getattr(owner, "looked_up", False)
            more = writes.get(name, 0), gains.get(name, 1.0), name in gated
            start = init.draw(
                Matrix(name, tuple(parameter.shape), looked_up, *more), generator(seed, name)
            )
        elif start is None and name.endswith("bias"):
            start = torch.zeros(parameter.shape)
        if start is not None:
            parameter.copy_(start)


def owned_parameters(
    modules: Mapping[str, nn.Module],
) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """Every parameter once, by its canonical name, with the module that has it. `named_parameters`
    walks over all modules for it, and a model that is built would be walked over five times.
    """
    seen: set[int] = set()
    for path, module in modules.items():
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield canonical(f"{path}.{key}" if path else key), parameter, module


def _writes(modules: Mapping[str, nn.Module]) -> dict[str, int]:
    """Every matrix that writes to the residual stream, by name -> how often that of its stack is
    written to. A block that several layers share writes as often; one of an extra, which no layer
    calls, does not count.
    """
    called: dict[str, Any] = {
        path: module.called for path, module in modules.items() if hasattr(module, "called")
    }
    times: dict[str, int] = {}
    for name in residual_names(modules.items()):
        times[name] = next((n for path, n in called.items() if name.startswith(f"{path}.")), 1)
    sums: dict[str, int] = {}
    for name, n in times.items():
        stack = name.split(".", 1)[0]
        sums[stack] = sums.get(stack, 0) + n
    return {name: sums[name.split(".", 1)[0]] for name in times}


def _own(module: nn.Module, name: str, parameter: Tensor, seed: int) -> Tensor | None:
    initial = getattr(module, "initial", None)
    return (
        initial(name.rsplit(".", 1)[-1], tuple(parameter.shape), generator(seed, name))
        if initial
        else None
    )


def placement_gains(model: Any) -> dict[str, float]:
    """Factors of initial standard deviations that placements need, by parameter name."""
    found: dict[str, float] = {}
    for name in model.names:
        for where, block in model.get_submodule(name).named_blocks.items():
            for names, placement in zip(block.groups, block.placement.values(), strict=True):
                for matrix, gain in placement.gains().items():
                    found |= {
                        f"{name}.{where}.{sublayer}.{full}": gain
                        for sublayer in names
                        for full, _ in getattr(block, sublayer).named_parameters()
                        if f".{full}".endswith(f".{matrix}.weight")  # also of an expert's
                    }
    return found
