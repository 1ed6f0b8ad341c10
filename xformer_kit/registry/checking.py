"""Faults of a component's node: unknown options, values of wrong types, and its own checks."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from xformer_kit.registry.context import Context
from xformer_kit.registry.fault import Fault, Faults, format_value
from xformer_kit.registry.messages import Options, UnknownValueError, unknown_option
from xformer_kit.registry.node import Node
from xformer_kit.registry.option_types import REQUIRED, holds_nested, mismatch

if TYPE_CHECKING:
    from xformer_kit.registry.registry import Registry


def node_faults(
    registry: "Registry",
    node: Any,
    path: str,
    context: Context,
    other_keys: Iterable[str] = (),
    elsewhere: Callable[[], Mapping[str, list[str]]] | None = None,
    wrong: Iterable[str] = (),
) -> Faults:
    """Every fault of a component's node and of components inside it.

    other_keys: keys of the node that are valid and no options of the component. elsewhere()
    gives keys of other nodes -> how one writes them; they are proposed for an unknown option that
    no component of the kind has. wrong: options that are known to be at fault, whose values mean
    nothing.
    """
    node = registry.as_node(node)
    name = node.get("name") if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or name is None:
        known = f"Known: {', '.join(sorted(registry))}."
        yield Fault(path, f"must name a {registry.kind}", got=format_value(node), fix=known)
        return
    if name not in registry:
        yield registry.unknown(name).at(path)
        if (name := registry.find_name(name)) is None:
            return
        node = {**node, "name": name}
    options, wrong = registry.options(name), set(wrong)
    for key in node:
        if key != "name" and key not in options:
            there = dict(elsewhere()) if elsewhere else _of_outer(context, path)
            there |= _of_others(registry, name, path) | _inside(registry, name, path, key)
            yield unknown_option(path, registry.kind, name, key, [*options, *other_keys], there)
            wrong |= {key, *get_close_matches(key, options, n=1)}  # it may have been meant
    chosen = registry.defaults(name) | dict(node)
    yield from _value_faults(registry, node, chosen, path, context, wrong)
    if hasattr(registry[name], "check"):
        # After the first value that is no value of its option, a check cannot go on.
        with suppress(UnknownValueError):
            here = dataclasses.replace(context, path=path)
            for fault in registry[name].check(Options(wrong, **chosen), here):
                yield fault.at(path)


def _value_faults(
    registry: "Registry",
    node: Node,
    chosen: Node,
    path: str,
    context: Context,
    wrong: set[str],
) -> Faults:
    """Faults of single values; adds their options to `wrong`."""
    options = registry.options(node["name"])
    # Components inside it come last, for their checks read its options.
    for key in sorted(options, key=lambda key: holds_nested(options[key].type) is not None):
        value, option, here = chosen[key], options[key], f"{path}.{key}".strip(".")
        if value == REQUIRED:
            needs = f"{registry.kind} '{node['name']}' needs this option"
            yield Fault(
                f"{path}.{key}".strip("."), needs, fix=f"Give it {option.meaning or 'a value'}."
            )
            wrong.add(key)
        elif key in node and type(value) not in option.fits:
            inside = dataclasses.replace(context, outer=Options(wrong, **chosen))
            for fault in mismatch(option.type, value, here, inside):
                yield fault
                wrong.add(key)


def _inside(registry: "Registry", name: str, path: str, key: str) -> dict[str, list[str]]:
    """The option of a component inside that a key such as gate_rank means -> its path."""
    for option, inner in registry.inner(name).items():
        for word in (word for component in inner for word in inner.options(component)):
            if key == f"{inner.kind}_{word}":
                return {key: [f"{path}.{option}.{word}"]}
    return {}


def _of_outer(context: Context, path: str) -> dict[str, list[str]]:
    """Options of the component that this one is an option of -> their paths."""
    outer = path.rpartition(".")[0]
    return {key: [f"{outer}.{key}"] for key in (context.outer.node if context.outer else ())}


def _of_others(registry: "Registry", name: str, path: str) -> dict[str, list[str]]:
    """Options of the other components -> those components, as one chooses the first at a path."""
    found: dict[str, list[str]] = {}
    for other in registry if registry.kind != "settings" else ():
        for option in registry.options(other) if other != name else ():
            having = found.setdefault(option, [])
            having.append(
                other if having and not registry.several else registry.override_for(other, path)
            )
    return found
