"""Faults of a component's node: unknown options, values of wrong types, and its own checks."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from xformer_kit.registry.context import Context
from xformer_kit.registry.fault import ConfigError, Fault, Faults, format_value
from xformer_kit.registry.messages import Options, UnknownValueError
from xformer_kit.registry.node import Node
from xformer_kit.registry.option_types import REQUIRED, mismatch, to_plain
from xformer_kit.registry.other_options import unknown_option
from xformer_kit.text.command_lines import override_text

if TYPE_CHECKING:
    from xformer_kit.registry.registry import Registry


def node_faults(
    registry: "Registry",
    node: Any,
    path: str,
    context: Context,
    other_keys: Iterable[str] = (),
    elsewhere: Callable[[], Mapping[str, list[str]]] | None = None,
) -> Faults:
    """Yields every fault of a component's node and of components nested in it.

    other_keys: keys of the node that are valid and no options of the component.
    elsewhere: returns {key of another node: overrides that set it}, which are proposed for an
    unknown option.
    """
    node = registry.as_node(node)
    name = node.get("name") if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or name is None:
        known = f"Known: {', '.join(sorted(registry))}."
        yield Fault(path, f"must name a {registry.kind}", got=format_value(node), fix=known)
        return
    if name not in registry:
        yield registry.unknown(name).at(path)
        return
    options, invalid = registry.options(name), set[str]()
    for key in node:
        if key != "name" and key not in options:
            places = dict(elsewhere()) if elsewhere else {}
            places |= _other_components(registry, name, path)
            places |= _nested_options(registry, node, path)
            own = [*options, *other_keys]
            yield unknown_option(path, registry.kind, name, key, own, places, node[key])
            # The most similar option may have been intended.
            invalid |= {key, *get_close_matches(key, options, n=1)}
    chosen = registry.defaults(name) | dict(node)
    yield from _value_faults(registry, node, chosen, path, context, invalid)
    own_context = context.changed(path=path)
    for checked in (registry[name], registry.common):
        # A check stops where it reads an invalid value.
        with suppress(UnknownValueError):
            if hasattr(checked, "check"):
                for fault in checked.check(Options(invalid, **chosen), own_context):
                    yield fault.at(path)


def _value_faults(
    registry: "Registry",
    node: Node,
    chosen: Node,
    path: str,
    context: Context,
    invalid: set[str],
) -> Faults:
    """Yields the faults of single values; adds their options to `invalid`."""
    options, nesting = registry.options(node["name"]), registry.nesting(node["name"])
    # Nested components come last, because their checks read the options of this one.
    for key in [*(key for key in options if key not in nesting), *nesting]:
        value, option, option_path = chosen[key], options[key], f"{path}.{key}".strip(".")
        if value == REQUIRED:
            rule = f"{registry.kind} '{node['name']}' needs this option"
            meaning = option.meaning.partition(";")[0] or "a value"  # without its other values
            yield Fault(option_path, rule, fix=f"Give it {meaning}.")
            invalid.add(key)
        elif key in node and type(value) not in option.fits:
            own_context = context
            if key in nesting:
                own_context = context.changed(outer=Options(invalid, **chosen))
            for fault in mismatch(option.type, value, option_path, own_context):
                yield with_default(fault, option.default) if fault.path == option_path else fault
                invalid.add(key)


def with_default(fault: Fault, default: Any) -> Fault:
    """Returns the fault of a value of another type with the option's default as its fix, if it has
    no other fix.
    """
    default = to_plain(default)
    if fault.fix or default in (None, REQUIRED) or isinstance(default, Mapping):
        return fault
    text = override_text(default) if isinstance(default, list) else format_value(default)
    return dataclasses.replace(fault, fix=f"Try {text}.")


def _nested_options(registry: "Registry", node: Node, path: str) -> dict[str, list[str]]:
    """Returns {option: paths} of the components nested in a node."""
    found: dict[str, list[str]] = {}
    with suppress(ConfigError):  # a nested component that is unknown has its own fault
        for option, inner, inside in registry.nested(registry.complete(node)):
            found |= {word: [f"{path}.{option}.{word}"] for word in inner.options(inside["name"])}
    return found


def _other_components(registry: "Registry", name: str, path: str) -> dict[str, list[str]]:
    """Returns {option: overrides that choose a component with it} of the other components."""
    found: dict[str, list[str]] = {}
    for other in registry if registry.kind != "settings" else ():
        for option in registry.options(other) if other != name else ():
            found.setdefault(option, []).append(registry.override_for(other, path))
    return found
