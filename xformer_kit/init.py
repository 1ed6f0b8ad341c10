"""Which weights does a model start from? A pure function of (seed, canonical name, shape).

So a part that is added or replaced leaves the start of every other parameter untouched. Draws are made on the CPU in
fp32, whatever the model's device and dtype.
"""

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

STD = 0.02  # of every matrix (Radford et al., 2019, the released GPT-2)
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.", "module.")


def canonical(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "") if not name.startswith(wrapper) else name[len(wrapper) :].replace(wrapper, "")
    return name


def generator(seed: int, name: str) -> torch.Generator:
    """The source of a parameter's draw."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def residual_names(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every matrix that writes to the residual stream, by name, with its sublayer."""
    for path, module in model.named_modules():
        for name in getattr(module, "residual", ()):
            yield f"{path}.{name}.weight", module


@torch.no_grad()
def initialise(model: nn.Module, seed: int, gains: dict[str, float]) -> None:
    """GPT-2's start: matrices N(0, 0.02^2), those that write to the residual stream divided by sqrt(their number in
    the tower), biases zero; what else a part holds (the weights of norms, ...) stays as it was constructed.

    A module's method `initial(name, shape, generator) -> Tensor | None` answers first for its own parameters. `gains`
    maps names to factors of the standard deviation, as placements ask for them.
    """
    writes = {name for name, _ in residual_names(model)}
    towers = {name: name.split(".", 1)[0] for name in writes}
    count = {tower: sum(t == tower for t in towers.values()) for tower in towers.values()}
    owners = {id(p): module for module in model.modules() for p in module.parameters(recurse=False)}
    for full, parameter in model.named_parameters():
        name = canonical(full)
        start = _own(owners[id(parameter)], name, parameter, seed)
        if start is None and parameter.ndim >= 2:
            std = STD * gains.get(name, 1.0)
            if name in writes:
                std /= math.sqrt(count[towers[name]])
            start = torch.empty(parameter.shape).normal_(0, std, generator=generator(seed, name))
        elif start is None and name.endswith("bias"):
            start = torch.zeros(parameter.shape)
        if start is not None:
            parameter.copy_(start)


def _own(module: nn.Module, name: str, parameter: Tensor, seed: int) -> Tensor | None:
    initial = getattr(module, "initial", None)
    return initial(name.rsplit(".", 1)[-1], tuple(parameter.shape), generator(seed, name)) if initial else None
