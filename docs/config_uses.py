"""Finds the configs in conf/ that use a component, by reading the YAML: defaults lists, nodes,
factors of a study.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.kinds import KINDS

CONF = Path(__file__).resolve().parents[1] / "conf"
Component = tuple[str, str]  # kind, name


def configs(conf: Path = CONF) -> list[Path]:
    """Returns the file of each config, sorted by depth and path."""
    return sorted(
        conf.rglob("*.yaml"), key=lambda path: (len(path.relative_to(conf).parts), str(path))
    )


def key(path: Path, conf: Path = CONF) -> str:
    """Returns the name of a config: train, experiment/copy, study/findings/qk_norm."""
    return str(path.relative_to(conf).with_suffix(""))


def uses(conf: Path = CONF) -> dict[Component, list[str]]:
    """Returns {component: names of the configs that use it}."""
    found: dict[Component, list[str]] = {}
    for path in configs(conf):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        for component in dict.fromkeys(components_in(node, ())):
            found.setdefault(component, []).append(key(path, conf))
    return found


def components_in(node: Any, path: tuple[str, ...]) -> Iterator[Component]:
    """Yields the components in a config's node at a path."""
    kind = _kind(path)
    if isinstance(node, Mapping):
        if kind and isinstance(node.get("name"), str):
            yield from _component(kind, node["name"])
        for word, value in node.items():
            yield from components_in(value, (*path, *_path(str(word))))
    elif isinstance(node, list):
        for value in node:
            yield from components_in(value, path)
    elif isinstance(node, str):
        left, sign, right = node.partition("=")
        if sign and (other := _kind(_path(left))):
            yield from _component(other, right)
        elif kind:
            yield from _component(kind, node)


def _path(word: str) -> tuple[str, ...]:
    """Splits a key of a node, a defaults list or a command line: attn.score, override /attn."""
    return tuple(word.removeprefix("override ").lstrip("/").replace("/", ".").split("."))


def _kind(path: tuple[str, ...]) -> str | None:
    """Returns the kind at a path; for entries of a combined mask and levels of a factor the kind of
    the enclosing node.
    """
    while path and path[-1] in ("of", "values", "levels"):
        path = path[:-1]
    return next(
        (kind for kind in (".".join(path[-2:]), ".".join(path[-1:])) if kind in KINDS), None
    )


def _component(kind: str, name: str) -> Iterator[Component]:
    if name in KINDS[kind]:
        yield kind, name
