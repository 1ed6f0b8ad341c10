"""What a command line can name, as plain data: the table that tab completion reads."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, TypedDict, get_args, get_origin

from xformer_kit.config.hydra.hydra_session import open_session
from xformer_kit.config.line.composition import compose
from xformer_kit.config.line.overrides import INSTRUCTIONS
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS
from xformer_kit.config.saved.difference import flat
from xformer_kit.registry import Node, Registry

Values = dict[str, list[str]]  # {key: values that can be proposed}


class CompletionTable(TypedDict):
    """Everything that a command line can name."""

    choices: Values  # {group: names}
    chosen: dict[str, str]  # {group: name in the default run}
    options: dict[str, dict[str, Values]]  # {group: {name: {option: values}}}
    settings: Values  # keys that belong to no component, with the values that can be proposed


def completion_table() -> CompletionTable:
    """Returns the table of the components that are registered now and of the files in conf/."""
    session, config = open_session(), compose([], data=False)
    settings = {
        key: ["true", "false"] if isinstance(value, bool) else []
        for key, value in flat(config)
        if not _is_of_component(key, config)
    }
    registries = {**GROUPS, **MAPPING_GROUPS}
    options = {
        group: {name: dict(_options(registry, name)) for name in registry}
        for group, registry in registries.items()
    }
    for group, registry in GROUPS.items():  # typed names such as gqa, which are not proposed
        options[group] |= {n: options[group][alias.name] for n, alias in registry.aliases.items()}
    return {
        "choices": {
            group: list(GROUPS[group]) if group in GROUPS else session.choices(group)
            for group in session.groups()
        },
        "chosen": {group: config[group]["name"] for group in GROUPS},
        "options": options,
        "settings": settings | {key: [] for key in (*INSTRUCTIONS, "hydra.run.dir")},
    }


def _is_of_component(key: str, config: Node) -> bool:
    """Whether a key is the name or an option of a component; data.seq_len is neither."""
    group, option, *_ = [*key.split("."), ""]
    if group not in GROUPS:
        return False
    return option == "name" or option in GROUPS[group].options(config[group]["name"])


def _options(registry: Registry, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (option, its values) of a component: the names of the components that it can hold, the
    values of a Literal, true and false.
    """
    inner = registry.inner(name)
    for option, each in registry.options(name).items():
        yield option, list(inner[option]) if option in inner else list(_values(each.type))


def _values(annotation: Any) -> Iterator[str]:
    """Yields the values of a type that has few."""
    if annotation is bool:
        yield from ("true", "false")
    elif annotation is type(None):
        yield "null"
    elif get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif isinstance(annotation, UnionType):
        for each in get_args(annotation):
            yield from _values(each)
