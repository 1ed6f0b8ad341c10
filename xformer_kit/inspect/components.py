"""The registered components and their options as plain data, and their docstrings as text."""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xformer_kit.registry import (
    REQUIRED,
    Registry,
    config_error,
    format_value,
    suggestion,
    to_plain,
    type_name,
)

Table = dict[str, dict[str, dict[str, dict[str, Any]]]]


class OptionRow(NamedTuple):
    """One option as a user reads it."""

    name: str
    type: str
    default: str
    meaning: str


def table(registries: Iterable[Registry]) -> Table:
    """{kind: {name: {option: {"type": ..., "default": ...}}}}, kinds by the words of a command
    line; the default of an option that must be given is "???".
    """
    return {
        registry.group: {
            name: {
                option: {"type": type_name(o.type), "default": to_plain(o.default)}
                for option, o in registry.options(name).items()
            }
            for name in registry
        }
        for registry in registries
    }


def find_kind(word: str, groups: Mapping[str, Registry]) -> Registry:
    """The registry of a kind, by its word on the command line or in a sentence. Raises ConfigError
    with the nearest one.
    """
    kinds = {registry.kind: registry for registry in groups.values()} | dict(groups)
    if word in kinds:
        return kinds[word]
    for group, registry in groups.items():
        if word in registry or word in registry.also_called:
            name = registry.also_called.get(word, word)
            raise config_error(
                "components",
                f"'{word}' is no kind but a {registry.kind}",
                fix=f"Try xformer components {group} {name}.",
            )
    raise config_error("components", f"no kind is called '{word}'", fix=suggestion(word, groups))


def rows(registry: Registry, name: str) -> list[OptionRow]:
    return [
        OptionRow(option, type_name(o.type), written(o.default), o.meaning)
        for option, o in registry.options(name).items()
    ]


def written(value: Any) -> str:
    """A value as one writes it in YAML or on the command line."""
    if value == REQUIRED:
        return "required"
    value = to_plain(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if value is None or isinstance(value, bool):
        return format_value(value)
    return (
        f"{value:g}"
        if isinstance(value, float) and len(f"{value:g}") < len(str(value))
        else str(value)
    )


def names_for(registry: Registry, name: str) -> list[str]:
    """What the component is also called."""
    return [alias for alias, own in registry.also_called.items() if own == name]


def doc(component: Any) -> str:
    """The component's own docstring, or nothing; what dataclasses write of themselves is none."""
    text = inspect.cleandoc(component.__doc__ or "")
    return "" if text.startswith(f"{component.__name__}(") else text


def summary(component: Any) -> str:
    """The first sentence of the docstring, on one line and without its source in brackets."""
    text = " ".join(doc(component).split("\n\n")[0].split())
    text = re.sub(r" \([^()]*(?:\([^()]*\)[^()]*)*\b(?:19|20)\d\d\b[^()]*\)", "", text)
    return re.split(r"(?<!\bal\.)(?<!\beq\.)(?<!e\.g\.)(?<!i\.e\.)(?<=[.;])\s", text, maxsplit=1)[
        0
    ].rstrip(".;: ")
