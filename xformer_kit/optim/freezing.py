"""Parameters that an optimizer does not train, by their names."""

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from torch import nn


class Freezing:
    """The parameters of a model whose names match a pattern, `model.freeze`: they have no gradient,
    so that the optimizer neither changes nor decays them and has no state for them. With `until`,
    they are trained from that step on, counted from 0.
    """

    def __init__(self, model: nn.Module, patterns: Collection[str], until: int | None = None):
        self.until = until
        self.parameters = [p for name, p in model.named_parameters() if matches(name, patterns)]

    def prepare(self) -> None:
        """Call before the optimizer is created, which has the parameters that require a gradient:
        those that are trained later, too.
        """
        self._require(self.until is not None)

    def set_step(self, step: int) -> None:
        """Call after the optimizer is created, and before a step that `changes_at`."""
        self._require(self.until is not None and step >= self.until)

    def changes_at(self, step: int) -> bool:
        return bool(self.parameters) and step == self.until

    def _require(self, gradient: bool) -> None:
        for parameter in self.parameters:
            parameter.requires_grad_(gradient)


def matches(name: str, patterns: Collection[str]) -> bool:
    """Whether a name matches one of the patterns of a shell, or is in a module that they name."""
    return any(fnmatchcase(name, each) or fnmatchcase(name, f"{each}.*") for each in patterns)


def unmatched(patterns: Collection[str], names: Collection[str]) -> Iterator[str]:
    """Yields each pattern that matches none of the names."""
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            yield pattern
