"""The node of a component that is an option of another one."""

from typing import Any


class InnerNode(dict[str, Any]):
    """A complete node, with its registry and its class."""

    def __init__(self, registry: Any, node: Any):
        super().__init__(registry.with_inner(node))
        self.registry = registry
        self.component = registry[self["name"]]

    def create(self, **given: Any) -> Any:
        """Builds the component."""
        return self.registry.create(self, **given)
