"""Differences between configs: the paths whose values are not equal in all of them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xformer_kit.registry import Node, format_value


def flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (config path, value) of every value that is no mapping."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def differing(configs: Sequence[Node]) -> list[str]:
    """Returns the paths whose values differ between flat configs. If the names of a component
    differ, its options are left out: they follow from the name.
    """
    missing = object()
    paths = [
        p
        for p in dict.fromkeys(itertools.chain(*configs))
        if any(c.get(p, missing) != configs[0].get(p, missing) for c in configs)
    ]
    nodes = {path.removesuffix("name") for path in paths if path.endswith(".name")}
    return [
        p for p in paths if not any(p.startswith(node) and p != f"{node}name" for node in nodes)
    ]


def as_literal(value: Any) -> Any:
    """Returns null, true or false for None, True or False; any other value unchanged."""
    return format_value(value) if value is None or isinstance(value, bool) else value
