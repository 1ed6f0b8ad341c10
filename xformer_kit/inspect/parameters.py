"""Numbers of parameters."""

from typing import Any

from torch import nn

from xformer_kit.optim.freezing import Freezing
from xformer_kit.registry import Node


def count(module: nn.Module) -> int:
    """Number of parameters; shared ones (a tied embedding) count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def active(module: nn.Module) -> int:
    """Number of parameters that one token uses on average: all, without the experts that are not
    chosen, which a component counts as `unused()`.
    """
    modules: Any = module.modules()
    return count(module) - sum(m.unused() for m in modules if hasattr(m, "unused"))


def frozen(module: nn.Module, config: Node) -> int:
    """Number of parameters that are not trained in the first step."""
    options = config["model"]
    Freezing(module, options.get("freeze") or (), options.get("unfreeze_at")).set_step(0)
    return sum(p.numel() for p in module.parameters() if not p.requires_grad)


def count_new(module: nn.Module, counted: set[int]) -> int:
    """Number of parameters whose ids are not in `counted`; adds their ids to it, so that a shared
    parameter counts in the first module.
    """
    new = {id(p): p.numel() for p in module.parameters() if id(p) not in counted}
    counted.update(new)
    return sum(new.values())
