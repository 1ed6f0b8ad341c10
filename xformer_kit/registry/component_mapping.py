"""Config nodes with any number of components of a kind: {name: options}."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.registry.context import Context
from xformer_kit.registry.fault import Fault, Faults, format_value
from xformer_kit.registry.registry import Registry


def complete_mapping(registry: Registry, node: Any) -> Any:
    """Returns the node with the defaults of each component, without components that are null; an
    unknown name stays, for its fault.
    """
    if not isinstance(node, Mapping):
        return node
    found = {k: v for k, v in node.items() if v is not None or registry.find_name(k) is None}
    for name, options in found.items():
        if name in registry and isinstance(options, Mapping):
            found[name] = {**registry.defaults(name), **options}
            found[name].pop("name")
    return found


def mapping_faults(
    registry: Registry, node: Any, path: str, context: Context, hint: str = ""
) -> Faults:
    """Yields every fault of a node {name: options}.

    hint: see `Registry.unknown`.
    """
    if not isinstance(node, Mapping):
        name = node if isinstance(node, str) and node in registry else min(registry)
        yield Fault(
            path,
            "must map names to options",
            got=format_value(node),
            fix=f"Try {path}={{}}, or {path}.{name}={{}}.",
        )
        return
    for name, options in node.items():
        if name not in registry:
            yield registry.unknown(name, hint).at(f"{path}.{name}")
        elif isinstance(options, Mapping):
            yield from registry.faults({"name": name, **options}, f"{path}.{name}", context)
        else:
            yield Fault(
                f"{path}.{name}",
                "must be a mapping of options, {} where there are none",
                got=format_value(options),
            )
