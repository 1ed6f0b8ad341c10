"""Several optimizers as one."""

from collections.abc import Sequence
from typing import Any

import torch


class Combined(torch.optim.Optimizer):
    """Steps of several optimizers, each over its own groups, with one state_dict.

    `param_groups` are those of all, so that a schedule sets the rate of each.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]):
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.optimizers = list(optimizers)
        super().__init__(groups, {})
        self._share()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether each skips a step by `found_inf`, on the device."""
        return all(getattr(one, "_step_supports_amp_scaling", False) for one in self.optimizers)

    @property
    def found_inf(self) -> torch.Tensor | None:
        """1 for a step that changes nothing, see `skipped`."""
        return None

    @found_inf.setter
    def found_inf(self, value: torch.Tensor) -> None:
        for optimizer in self.optimizers:
            optimizer.found_inf = value  # type: ignore[attr-defined]

    @found_inf.deleter
    def found_inf(self) -> None:
        for optimizer in self.optimizers:
            del optimizer.found_inf  # type: ignore[attr-defined]

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # a loaded state replaces groups and state
        self._share()

    def _share(self) -> None:
        """Gives each optimizer its groups and the state of all."""
        start = 0
        for optimizer in self.optimizers:
            end = start + len(optimizer.param_groups)
            optimizer.param_groups = self.param_groups[start:end]
            optimizer.state = self.state
            start = end
