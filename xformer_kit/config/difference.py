"""In what do configs differ? The paths of their values that are not the same in all of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flat(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every value that is no mapping."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths whose values differ, of flat configs. Of a part only its name, where the names differ:
    its options follow from it.
    """
    missing = object()
    paths = [
        p
        for p in dict.fromkeys(p for c in configs for p in c)
        if any(c.get(p, missing) != configs[0].get(p, missing) for c in configs)
    ]
    named = {path[: -len(".name")] for path in paths if path.endswith(".name")}
    return [
        p
        for p in paths
        if not any(p.startswith(f"{part}.") and p != f"{part}.name" for part in named)
    ]


def written(value: Any) -> Any:
    """None, True and False as a command line has them."""
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else value
    )
