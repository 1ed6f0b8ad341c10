"""Other names of components in a config node, replaced by the components' own names."""

from collections.abc import Mapping
from typing import Any, get_origin

from xformer_kit.registry.fault import Fault, format_value
from xformer_kit.registry.option_types import REQUIRED, holds_nested, whole_number
from xformer_kit.registry.registry import Registry


def with_own_names(registry: Registry, node: Any, path: str, faults: list[Fault]) -> Any:
    """Returns a component's node, complete or a difference, in which it and the components nested
    in it have their own names, with the options that an other name implies. A name stays a name,
    and a boolean becomes the name that it chooses.

    Appends to `faults` each option that is set to another value than a name implies.
    """
    if registry.switch and isinstance(node, bool):
        return registry.switch[node]
    if isinstance(node, str):
        alias = registry.alias(node)
        if alias is None:
            return node
        return {"name": alias.name, **alias.implied} if alias.implied else alias.name
    if not isinstance(node, Mapping):
        return node
    node = dict(node)
    if (alias := registry.alias(node.get("name"))) is not None:
        faults += contradictions(registry, str(node["name"]), node, path)
        unset = {
            key: v for key, v in alias.implied.items() if _is_default(registry, alias, node, key)
        }
        node = {**node, "name": alias.name, **unset}
    for option, annotation in _types(registry, node.get("name")).items():
        if option in node:
            node[option] = _option_value(annotation, node[option], f"{path}.{option}", faults)
    return node


def contradictions(
    registry: Registry, other: str, options: Mapping[str, Any], path: str
) -> list[Fault]:
    """Returns the faults of options that are set to another value than the other name `other` of a
    component implies.
    """
    alias = registry.alias(other)
    if alias is None:
        return []
    return [
        Fault(
            f"{path}.{key}",
            f"'{other}' is {alias.name} with {key}={format_value(value)}",
            got=options[key],
            fix=f"Leave one of them out, or name '{alias.name}'.",
        )
        for key, value in alias.implied.items()
        if value not in (REQUIRED, options.get(key, value))
        and not _is_default(registry, alias, options, key)
    ]


def _is_default(registry: Registry, alias: Any, node: Mapping[str, Any], key: str) -> bool:
    """Whether an option is not set, or to the component's default."""
    return key not in node or node[key] == registry.defaults(alias.name)[key]


def _types(registry: Registry, name: Any) -> dict[str, Any]:
    """Returns {option: type} of the options of a component, or of all components that are loaded if
    a difference names none.
    """
    names = [name] if name in registry else registry.loaded if name is None else []
    return {key: option.type for each in names for key, option in registry.options(each).items()}


def _option_value(annotation: Any, value: Any, path: str, faults: list[Fault]) -> Any:
    """Returns the value of an option: a component, a list or a mapping of components, or others, of
    which 1e3 becomes 1000 for an integer option.
    """
    registry = holds_nested(annotation)
    if registry is None:
        return whole_number(annotation, value)
    if isinstance(value, (list, tuple)):
        return [named_node(registry, v, f"{path}[{i}]", faults) for i, v in enumerate(value)]
    if isinstance(value, Mapping) and "name" not in value and get_origin(annotation) is dict:
        return {k: named_node(registry, v, f"{path}.{k}", faults) for k, v in value.items()}
    return named_node(registry, value, path, faults)


def named_node(registry: Registry, node: Any, path: str, faults: list[Fault]) -> Any:
    """Returns `with_own_names`, in which {name: NAME} without options is the name."""
    found = with_own_names(registry, node, path, faults)
    is_name = isinstance(found, Mapping) and found.keys() == {"name"}
    return found["name"] if is_name and isinstance(found["name"], str) else found
