"""Nodes that name any number of components of a kind: {name: options}."""

from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.registry.context import Context
from xformer_kit.registry.fault import Fault
from xformer_kit.registry.messages import shown
from xformer_kit.registry.registry import Registry


def complete_many(registry: Registry, node: Any) -> Any:
    """The node with the defaults of each component; one that is null is left out."""
    if not isinstance(node, Mapping):
        return node
    return {
        name: _complete(registry, name, options)
        for name, options in node.items()
        if options is not None
    }


def _complete(registry: Registry, name: str, options: Any) -> Any:
    if name not in registry or not isinstance(options, Mapping):
        return options
    defaults = registry.defaults(name)
    return {key: value for key, value in defaults.items() if key != "name"} | dict(options)


def faults_of_many(
    registry: Registry, node: Any, path: str, context: Context, hint: str = ""
) -> Iterator[Fault]:
    """Every fault of such a node.

    hint: what is added to the fix of an unknown name.
    """
    if not isinstance(node, Mapping):
        name = node if isinstance(node, str) and node in registry else min(registry)
        yield Fault(
            path,
            "must map names to options",
            got=shown(node),
            fix=f"Try {path}={{}}, or {path}.{name}={{}}.",
        )
        return
    for name, options in node.items():
        if name not in registry:
            yield registry.unknown(name).at(f"{path}.{name}").with_fix(hint)
        elif not isinstance(options, Mapping):
            yield Fault(
                f"{path}.{name}",
                "must be a mapping of options, {} where there are none",
                got=shown(options),
            )
        else:
            yield from registry.faults({"name": name} | dict(options), f"{path}.{name}", context)
