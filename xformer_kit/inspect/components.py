"""The registered components and their options as plain data, and their docstrings as text."""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xformer_kit.config.saved.difference import as_literal
from xformer_kit.registry import (
    REQUIRED,
    Node,
    Registry,
    config_error,
    format_value,
    suggestion,
    to_plain,
    type_name,
)
from xformer_kit.text.command_lines import xformer

Table = dict[str, dict[str, dict[str, dict[str, Any]]]]


# Kind -> the components that lists begin with: the default of a run, then those that most models of
# the field have. The others follow in the order of their registry.
FIRST = {
    "attn": ("multi_head", "linear", "latent"),
    "mask": ("causal", "full", "sliding_window", "prefix"),
    "position": ("rotary", "learned", "sinusoidal", "alibi", "t5", "none"),
    "norm": ("rms", "layer"),
    "placement": ("pre", "post", "sandwich"),
    "ffn": ("glu", "mlp", "moe"),
    "kernel": ("auto", "sdpa", "flex", "varlen"),
    "task": ("language_modeling", "masked_language_modeling", "seq2seq", "classification"),
    "data": ("pydoc", "text", "jsonl", "csv", "parquet", "hub", "pairs", "tsv"),
    "tokenizer": ("bpe", "byte", "char", "pretrained"),
    "schedule": ("cosine", "linear", "constant"),
}


class OptionRow(NamedTuple):
    """One option, formatted for users."""

    name: str
    type: str
    default: str
    meaning: str


def table(registries: Iterable[Registry]) -> Table:
    """Returns {kind: {name: {option: {"type": ..., "default": ...}}}}, with the kinds as on the
    command line; the default of a required option is "???".
    """
    return {
        registry.group: {
            name: {
                option: {"type": type_name(o.type), "default": to_plain(o.default)}
                for option, o in registry.options(name).items()
            }
            for name in in_order(registry)
        }
        for registry in registries
    }


def in_order(registry: Registry) -> list[str]:
    """Returns the names of a kind's components in the order of lists, see FIRST."""
    return list(dict.fromkeys([*FIRST.get(registry.group, ()), *registry]))


def find_kind(word: str, groups: Mapping[str, Registry]) -> Registry:
    """Returns the registry of a kind, by its name on the command line or in messages. Raises
    ConfigError with the most similar name.
    """
    kinds = {registry.kind: registry for registry in groups.values()} | dict(groups)
    if word in kinds:
        return kinds[word]
    for group, registry in groups.items():
        if word in registry or word in registry.also_called:
            name = registry.also_called.get(word, word)
            raise config_error(
                "components",
                f"'{word}' is a component of the kind {registry.kind}",
                fix=f"Try: {xformer('components', group, name)}",
            )
    raise config_error("components", f"no kind is called '{word}'", fix=suggestion(word, groups))


def option_rows(registry: Registry, name: str) -> list[OptionRow]:
    """Returns the options of a component, in the order of its signature."""
    return [
        OptionRow(option, type_name(o.type), as_yaml(o.default), o.meaning)
        for option, o in registry.options(name).items()
    ]


def as_yaml(value: Any) -> str:
    """Formats a value as in YAML or on the command line; a missing default is "required"."""
    if value == REQUIRED:
        return "required"
    value = to_plain(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_yaml(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_yaml, value))}]"
    if isinstance(value, float):
        return min(str(value), f"{value:g}", key=len)
    return str(as_literal(value))


def aliases(registry: Registry, name: str) -> list[str]:
    """Returns the other names of a component that a config may use, each with the options that it
    implies: mqa (kv_heads=1); also the boolean that chooses it.
    """
    registry.options(name)  # imports its file
    booleans = [
        str(as_literal(i > 0)) for i, one in enumerate(registry.switch or ()) if one == name
    ]
    return booleans + [
        f"{other}{_implied(alias.implied)}"
        for other, alias in registry.aliases.items()
        if alias.name == name
    ]


def _implied(options: Node) -> str:
    """Returns the options that another name of a component implies, in brackets."""
    words = (
        f"with {key} set" if value == REQUIRED else f"{key}={format_value(value)}"
        for key, value in options.items()
    )
    return f" ({', '.join(words)})" if options else ""


def doc(component: Any) -> str:
    """Returns the component's docstring; empty if it has none or a dataclass's generated one."""
    text = inspect.cleandoc(component.__doc__ or "")
    return "" if text.startswith(f"{component.__name__}(") else text


def summary(component: Any) -> str:
    """Returns the first sentence of the docstring, on one line, without citations in brackets."""
    text = " ".join(doc(component).split("\n\n")[0].split())
    text = re.sub(r" \([^()]*(?:\([^()]*\)[^()]*)*\b(?:19|20)\d\d\b[^()]*\)", "", text)
    return re.split(r"(?<!\bal\.)(?<!\beq\.)(?<!e\.g\.)(?<!i\.e\.)(?<=[.;])\s", text, maxsplit=1)[
        0
    ].rstrip(".;: ")
