"""Parameters of a model."""

from typing import Any

from torch import nn


def count(module: nn.Module) -> int:
    """Parameters, those that are shared (a tied embedding) counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def active(module: nn.Module) -> int:
    """Parameters that a token meets on average: all but those of experts that it does not take,
    which a component counts as `unused()`.
    """
    components: list[Any] = [
        component for component in module.modules() if hasattr(component, "unused")
    ]
    return count(module) - sum(component.unused() for component in components)


def own(module: nn.Module, seen: set[int]) -> int:
    """Parameters of a module that are not in `seen`, which then holds them: a tied one belongs to
    who comes first.
    """
    fresh = {id(p): p.numel() for p in module.parameters() if id(p) not in seen}
    seen.update(fresh)
    return sum(fresh.values())
