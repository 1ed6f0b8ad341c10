"""Parameters that an optimizer does not train, by their names."""

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from torch import nn


class Freezing:
    """The parameters of a model whose names match a pattern, `model.freeze`: they have no gradient,
    so that the optimizer neither changes nor decays them and has no state for them. With `until`,
    they are trained from that step on, counted from 0.

    Attribute in_graph: whether gradients of parameters that are trained later are computed from the
    start and dropped after each backward pass, for DDP, which chooses the parameters of its
    messages before the first step.
    """

    def __init__(self, model: nn.Module, patterns: Collection[str], until: int | None = None):
        self.until = until
        chosen = {id(p): p for name, p in named_parameters(model) if matches(name, patterns)}
        self.parameters = list(chosen.values())
        self.in_graph = False

    def prepare(self) -> None:
        """Call before the optimizer is created, which has the parameters that require a gradient:
        those that are trained later, too.
        """
        self._require(self.until is not None)

    def set_step(self, step: int) -> None:
        """Call after the optimizer is created, and before a step that `changes_at`; with `in_graph`
        before each step.
        """
        self._require(self.until is not None and (self.in_graph or step >= self.until))

    def after_backward(self, step: int) -> None:
        """Drops the gradients of parameters that this step does not train."""
        if self.in_graph and self.until is not None and step < self.until:
            for parameter in self.parameters:
                parameter.grad = None
            self._require(False)

    def changes_at(self, step: int) -> bool:
        if not self.parameters or self.until is None:
            return False
        return step == self.until or (self.in_graph and step < self.until)

    def _require(self, gradient: bool) -> None:
        for parameter in self.parameters:
            parameter.requires_grad_(gradient)


def named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields (name, parameter) with all names of a shared parameter, also of a tied head's weight,
    which is a parameter of the embedding only.
    """
    yield from model.named_parameters(remove_duplicate=False)
    weight = getattr(getattr(model, "head", None), "weight", None)
    if isinstance(weight, nn.Parameter):
        yield "head.weight", weight


def matches(name: str, patterns: Collection[str]) -> bool:
    """Whether a name matches one of the patterns of a shell, or is in a module that they name."""
    return any(fnmatchcase(name, each) or fnmatchcase(name, f"{each}.*") for each in patterns)


def unmatched(patterns: Collection[str], names: Collection[str]) -> Iterator[str]:
    """Yields each pattern that matches none of the names."""
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            yield pattern
