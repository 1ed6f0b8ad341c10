"""The registry of the laws of components that are not part of a model, by their kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xformer_kit.config import GROUPS
from xformer_kit.config.line.overrides import value_text
from xformer_kit.registry import Registry

KindLaw = Callable[["Component"], None]
KIND_LAWS: dict[str, dict[str, KindLaw]] = {}  # kind -> name -> law


def law_of(kind: str, name: str) -> Callable[[KindLaw], KindLaw]:
    """Returns a decorator that registers a function of a component as a law of its kind. The
    function raises `component.broken(message)`, or NotApplicable.
    """

    def register(check: KindLaw) -> KindLaw:
        KIND_LAWS.setdefault(kind, {})[name] = check
        return check

    return register


class KindLawBroken(AssertionError):  # noqa: N818  (the name states what happened)
    """Raised if a component breaks a law of its kind."""


@dataclass(frozen=True)
class Component:
    """A component with values of its options, for which a law is checked."""

    kind: str
    node: dict[str, Any]  # complete
    law: str

    @property
    def registry(self) -> Registry:
        return GROUPS[self.kind]

    def create(self, **given: Any) -> Any:
        """Returns a new component. given: the arguments of the caller."""
        return self.registry.create(self.node, **given)

    def with_options(self, **options: Any) -> "Component":
        """Returns it with other values of those of these options that it has."""
        own = {key: value for key, value in options.items() if key in self.node}
        return Component(self.kind, {**self.node, **own}, self.law)

    def broken(self, message: str) -> KindLawBroken:
        """Returns the exception that states how the component breaks the law."""
        return KindLawBroken(f"the law '{self.law}' is broken: {message}. Seen with: {self}")

    def __str__(self) -> str:
        """The overrides that choose the component."""
        defaults = self.registry.defaults(self.node["name"])
        changed = (
            f"{self.kind}.{option}={value_text(value)}"
            for option, value in self.node.items()
            if option != "name" and value != defaults.get(option, ...)
        )
        return " ".join([f"{self.kind}={self.node['name']}", *changed])
