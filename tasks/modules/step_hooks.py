"""Lightning's hooks within a step, which Lightning does not call in manual optimization."""

from collections.abc import Iterable
from typing import Any

from lightning.pytorch import Callback

HOOKS = (
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
)


class StepHooks:
    """Calls the hooks of those callbacks that define them.

    on_before_backward and on_after_backward are called for each micro-batch, whose loss is a sum
    over its tokens; on_before_optimizer_step with the gradients of the mean loss, before clipping.
    """

    def __init__(self, callbacks: Iterable[Any] = ()):
        self._methods: dict[str, list[Any]] = {hook: [] for hook in HOOKS}
        for callback in callbacks:
            for hook, methods in self._methods.items():
                method = getattr(callback, hook)
                if getattr(method, "__func__", method) is not getattr(Callback, hook):
                    methods.append(method)

    def __contains__(self, hook: str) -> bool:
        return bool(self._methods[hook])

    def call(self, hook: str, task: Any, *arguments: Any) -> None:
        for method in self._methods[hook]:
            method(task.trainer, task, *arguments)
