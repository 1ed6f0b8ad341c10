"""What several optimizers share: checks of their options, torch's fused step, skipped steps."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch

from xformer_kit.registry import Fault, Faults, Node, Options, above, at_least
from xformer_kit.tensors.parametrization import Growth
from xformer_kit.tensors.shards import is_shard

FUSED = ("cpu", "cuda", "mps", "xpu")  # devices with torch's fused step


def uses_fused(params: list[dict[str, Any]], fused: bool | None, of_parts: bool = True) -> bool:
    """Whether torch's fused step is used: if None, if every parameter supports it. of_parts:
    whether torch has it for parts of parameters (DTensors), too.
    """
    if fused is not None:
        return fused
    parameters = [p for group in params for _, p in group["params"]]
    return all(
        p.is_floating_point() and p.device.type in FUSED and (of_parts or not is_shard(p))
        for p in parameters
    )


def per_input(options: Node, shape: Sequence[int], growth: Growth) -> float:
    """Returns the divisor of muP for steps whose numbers have one size, see OptimizerAttributes: a
    sum over more inputs of such steps grows with their number.
    """
    return growth.inputs


def rate_faults(options: Options, lr: str = "Try 1e-3.") -> Faults:
    """Yields the faults of lr, eps and weight_decay."""
    yield from above(options, lr, lr=0)
    yield from above(options, "Try 1e-8.", eps=0)
    yield from at_least(options, weight_decay=0)


def beta_faults(options: Options, default: tuple[float, ...]) -> Faults:
    """Yields the faults of betas."""
    for i, beta in enumerate(options.betas):
        if not 0 <= beta < 1:
            rule, fix = "must be at least 0 and below 1", f"Try {default[i]}."
            yield Fault(f"betas[{i}]", rule, got=beta, fix=fix)


def skipped(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """Returns `found_inf`, which a run sets on a GPU before each step: 1 for a step that changes
    neither weights nor state, else 0, a scalar on the device. None if it is not set.
    """
    return vars(optimizer).get("found_inf")


def library(name: str) -> Any:
    """Imports a library of the extra `optim`."""
    return importlib.import_module(name)


def library_faults(name: str) -> Faults:
    """Yields a fault if a library of the extra `optim` is not installed."""
    if importlib.util.find_spec(name) is None:
        fix = "Use pip install 'xformer_kit[optim]'."
        yield Fault("name", f"needs the library {name}, which is not installed", fix=fix)
