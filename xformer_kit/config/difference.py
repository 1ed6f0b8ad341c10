"""Differences between configs: the paths of values that are not the same in all of them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xformer_kit.registry import Node


def flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every value that is no mapping."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def differing(configs: Sequence[Node]) -> list[str]:
    """Paths whose values differ, of flat configs. If the names of a component differ, its options
    are left out: they follow from the name.
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
    """None, True and False in the form of a command line."""
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else value
    )
