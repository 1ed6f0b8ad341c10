"""Numbers of parameters."""

from typing import Any

from torch import nn


def count(module: nn.Module) -> int:
    """Number of parameters; shared ones (a tied embedding) count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def active(module: nn.Module) -> int:
    """Number of parameters that one token uses on average: all, without the experts that are not
    chosen, which a component counts as `unused()`.
    """
    modules: Any = module.modules()
    return count(module) - sum(m.unused() for m in modules if hasattr(m, "unused"))


def count_new(module: nn.Module, counted: set[int]) -> int:
    """Number of parameters whose ids are not in `counted`; adds their ids to it, so that a shared
    parameter counts in the first module.
    """
    new = {id(p): p.numel() for p in module.parameters() if id(p) not in counted}
    counted.update(new)
    return sum(new.values())
