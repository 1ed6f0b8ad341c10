"""What a registry holds and returns: options, other names, inner nodes, and broken laws."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Alias(NamedTuple):
    """What another name of a component means."""

    name: str  # the component's own name
    # options that the other name sets (mqa: one key head), or that a config must set (REQUIRED)
    implied: Mapping[str, Any] = MappingProxyType({})


class Broken(NamedTuple):
    """A component that breaks a law, with the reason."""

    reason: str
    kind: str
    name: str
    option: str = ""  # option of the enclosing component that holds it, such as "router"

    def __str__(self) -> str:
        reason = self.reason.rstrip(".")
        return f"{self.kind} '{self.name}': {reason}" if self.option else reason


class Option(NamedTuple):
    """One option of a component."""

    type: Any
    default: Any  # REQUIRED if there is none
    description: str | Callable[[], str] = ""
    fits: frozenset[type] = frozenset()  # types whose values are all valid

    @property
    def meaning(self) -> str:
        """Returns its unit or meaning. It is read from the component's source on first use: that
        takes milliseconds per component.
        """
        return self.description() if callable(self.description) else self.description


class InnerNode(dict[str, Any]):
    """A complete node, with its registry and its class."""

    def __init__(self, registry: Any, node: Any):
        super().__init__(registry.with_inner(node))
        self.registry = registry
        self.component = registry[self["name"]]

    def create(self, **arguments: Any) -> Any:
        """Builds the component with the arguments that the model passes."""
        return self.registry.create(self, **arguments)
