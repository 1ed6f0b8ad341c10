"""The values of its options with which a component is checked."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from xformer_kit.config import GROUPS
from xformer_kit.registry import REQUIRED, Context, Fault

# Values of required options, by type.
EXAMPLES: dict[Any, Any] = {int: 2, float: 0.5, bool: True}
EXAMPLES |= {list[int | str]: ["yes", "no"], list[str]: ["yes", "no"], list[int]: [1, 2]}


def option_nodes(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the node of a component with its defaults, and with each other value of each option
    that has few values, if it is accepted.
    """
    base = default_node(kind, name)
    options = GROUPS[kind].options(name)
    nodes = [
        {**base, key: value}
        for key, option in options.items()
        if isinstance(base.get(key), bool | str)
        for value in other_values(option.type, base[key])
    ]
    return [base, *(node for node in nodes if not node_faults(kind, node))]


def default_node(kind: str, name: str) -> dict[str, Any]:
    """Returns the node of a component with its defaults, and examples for required options."""
    registry = GROUPS[kind]
    options, node = registry.options(name), registry.defaults(name)
    required = (key for key, value in node.items() if value == REQUIRED)
    return node | {key: EXAMPLES.get(options[key].type, REQUIRED) for key in required}


def other_values(annotation: Any, value: Any) -> Iterator[Any]:
    """Yields other values of an option: those of a Literal, the other bool, numbers next to it."""
    if get_origin(annotation) is Literal:
        yield from (other for other in get_args(annotation) if other != value)
    elif get_origin(annotation) is UnionType:
        for kind in get_args(annotation):
            if get_origin(kind) is Literal or type(value) is kind:
                yield from other_values(kind, value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, float):
        yield value / 2


def node_faults(kind: str, node: dict[str, Any]) -> list[Fault]:
    """Returns the faults of a component by itself."""
    return list(GROUPS[kind].faults(node, kind, Context()))
