"""Names of tensors as texts, and what a run does not copy from the weights that it starts from."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any


def listed(names: Collection[str], every: Iterable[str] = ()) -> str:
    """Returns names as a text, those that differ in a layer's number as one pattern with their
    count: decoder.*.attn.k.weight (4). every: names of all tensors, to name whole modules.
    """
    return ", ".join(
        f"{pattern}{f' ({len(group)})' * (len(group) > 1)}"
        for pattern, group in grouped(names, every)
    )


def not_copied(entry: Mapping[str, Any], every: Iterable[str] = ()) -> list[str]:
    """Returns a text for each way in which tensors are not copied as they are, with their names.

    entry: the content of init_from.json. every: as in `listed`.
    """
    titles = {
        "missing": "new, with initial values",
        "reshaped": "of another shape, with initial values",
        "unused": "not used",
    }
    names = [*every]
    parts = [f"{t}: {listed(entry[key], names)}" for key, t in titles.items() if entry.get(key)]
    by_rule: dict[str, list[str]] = {}
    for name, rule in entry.get("resized", {}).items():
        by_rule.setdefault(rule, []).append(name)
    parts += [f"{rule}: {listed(found)}" for rule, found in by_rule.items()]
    rows = entry.get("new_rows", {}).items()
    return parts + [f"{new:,} of {of:,} rows of {name} are new" for name, (new, of) in rows if new]


def grouped(names: Collection[str], every: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields (pattern, names): tensors that differ in a layer's number have one pattern, and so
    have all tensors of a module, in a model whose names are `every`, if that is not empty.
    """
    others = {prefix for name in every if name not in names for prefix in _prefixes(name)}
    groups: dict[str, list[str]] = {}
    for name in names:
        modules = _prefixes(name) if every else ()
        whole = next((module for module in modules if module not in others), name)
        pattern = name if whole == name else f"{whole}.*"
        groups.setdefault(re.sub(r"\.\d+\.(?!\*$)", ".*.", pattern), []).append(pattern)
    for pattern, group in groups.items():
        yield (pattern if len(set(group)) > 1 else group[0]), group


def _prefixes(name: str) -> list[str]:
    """Returns the names of the modules that contain a tensor, the outermost first."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words))]
