"""The files of xformer_kit/typed: types of a config in Python, made from the registries.
`python -m xformer_kit.inspect.table` writes them.

A kind has one type with the options of all its components: whether an option is one of the chosen
component is checked when the config is composed.
"""

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.config.line.composition import choices
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import OPTIONS as TRAINER
from xformer_kit.inspect.components import in_order
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import Option, Registry, nested
from xformer_kit.registry.option_types import holds_nested

Fields = dict[str, list[Any]]  # key -> the members of its type: texts, and the values of literals
FOLDER = Path(__file__).parents[1] / "typed"
HEADER = '''"""Types of the config of a {}; see `Config`.

Written by `python -m xformer_kit.inspect.table`.
"""
# fmt: off
# ruff: noqa: I001

from __future__ import annotations

'''
NODES = ("ema", "checkpoints", "init_from", "lora")  # of settings


class Value(str):
    """A value of a literal."""


def files() -> dict[str, str]:
    """Returns {name of a file in typed/: its text}."""
    shared = {"Extra", "Stack"} | {name for kind in KINDS for name in _choice(kind)}
    imports = f"from xformer_kit.typed.model import ({', '.join(sorted(shared))})"
    typing = "from typing import Any, Literal, TypedDict\n"
    return {
        "model.py": HEADER.format("model") + typing + "".join(_model_classes()),
        "run.py": HEADER.format("run")
        + typing
        + "\n"
        + _wrapped(imports)
        + "".join(_run_classes()),
    }


def _model_classes() -> Iterable[str]:
    for group, registry in (KINDS | NESTED_GROUPS).items():
        yield from _component_classes(group, registry)
    yield from _mapping_classes("extra")
    parts: Fields = {kind: _choice(kind) for kind in KINDS} | {"cross": _choice("attn")}
    yield _class("Variant", "differences from the stack", parts)
    stack = _options(SETTINGS.options("stack")) | {
        "variants": ["dict[str, Variant]", "None"],
        "layout": ["list[Any]", "None"],
    }
    yield _class("Stack", "differences from the shared components", stack | parts)


def _run_classes() -> Iterable[str]:
    for group, registry in GROUPS.items():
        if group not in KINDS:
            yield from _component_classes(group, registry)
    for group in MAPPING_GROUPS:
        if group != "extra":
            yield from _mapping_classes(group)
    for node in NODES:
        yield _class(_title(node), "settings", _options(SETTINGS.options(node)))
    known = choices()
    model = _options(SETTINGS.options("model")) | {stack: ["Stack", "None"] for stack in STACKS}
    for group, options in {"model": model, "trainer": _options(TRAINER)}.items():
        yield _names(group, known[group])
        fields: Fields = {"name": [f"{_title(group)}Name"]}
        yield _class(_title(group), "settings", fields | options)
    config: Fields = {"name": ["str"]} | _options(SETTINGS.options("run"))
    config |= {group: _choice(group) for group in ("model", *GROUPS, "trainer")}
    config["logger"] = [*config["logger"], "list[LoggerName]"]
    config |= {name: [_title(name)] for name in (*NODES, *MAPPING_GROUPS)}
    config |= {"experiment": ["str", "list[str]"], "components": ["list[str]"]}
    yield _class("Config", "differences from the default run", config)


def _component_classes(group: str, registry: Registry) -> Iterable[str]:
    """Yields the type of a kind's names, and the type of a component with its options."""
    other = {*registry.also_called} & {*registry.aliases}  # those that a config may use
    yield _names(group, [*in_order(registry), *sorted(other)])
    fields = {"name": [f"{_title(group)}Name"]} | _merged(registry)
    if group == "logger":  # several: {NAME: options}
        fields |= {name: ["dict[str, Any]"] for name in registry}
    yield _class(_title(group), f"a component of {group}", fields)


def _mapping_classes(group: str) -> Iterable[str]:
    """Yields the types of a mapping of components, {name: options}."""
    registry, name = MAPPING_GROUPS[group], f"{_title(group)}Options"
    yield _class(name, f"a component of {group}", _merged(registry))
    fields: Fields = {key: [name] for key in registry}
    yield _class(_title(group), "components by name", fields)


def _merged(registry: Registry) -> Fields:
    """Returns the options of all components of a kind, with the settings next to them."""
    found: Fields = _options(SETTINGS.options(registry.group)) if registry.group in SETTINGS else {}
    for name in registry:
        for key, members in _options(registry.options(name)).items():
            found[key] = list(dict.fromkeys([*found.get(key, []), *members]))
    return found


def _options(options: Mapping[str, Option]) -> Fields:
    return {key: _members(option.type) for key, option in options.items()}


def _members(annotation: Any) -> list[Any]:
    """Returns the members of the type that an option's value has in a config."""
    origin, args = get_origin(annotation), get_args(annotation)
    if (registry := nested(annotation)) is not None:
        return _choice(registry.group) + (["bool"] if registry.switch else [])
    if origin is Literal:
        return [Value(repr(arg)) for arg in args]
    if origin in (Union, UnionType):
        return [member for arg in args for member in _members(arg)]
    if origin in (list, tuple):
        item = "Any" if holds_nested(annotation) else _union(_members(args[0]))
        return [f"list[{item}]", f"tuple[{item}, ...]"]
    if origin is dict or annotation is dict:
        return ["dict[str, Any]"]
    return ["None" if annotation is NoneType else getattr(annotation, "__name__", "Any")]


def _choice(group: str) -> list[Any]:
    """Returns the members of a component in a config: a node, or a name."""
    return [_title(group), f"{_title(group)}Name"]


def _title(group: str) -> str:
    """Returns the name of a group's type: AttnQkNorm for attn.qk_norm."""
    return group.replace(".", "_").title().replace("_", "")


def _union(members: Iterable[Any]) -> str:
    members = list(dict.fromkeys(members))
    literal = ", ".join(member for member in members if isinstance(member, Value))
    plain = [member for member in members if not isinstance(member, Value)]
    return " | ".join(
        ([f"Literal[{literal}]"] if literal else []) + sorted(plain, key="None".__eq__)
    )


def _names(group: str, names: Iterable[str]) -> str:
    values = ", ".join(f'"{name}"' for name in names)
    return "\n\n" + _wrapped(f"{_title(group)}Name = Literal[{values}]").rstrip() + "\n"


def _class(name: str, what: str, fields: Fields) -> str:
    lines = [
        _wrapped(f"    {key}: {_union(members)}", "        ") for key, members in fields.items()
    ]
    return f"\n\nclass {name}(TypedDict, total=False):  # {what}\n{''.join(lines)}"


def _wrapped(line: str, indent: str = "    ") -> str:
    return textwrap.fill(line, 100, subsequent_indent=indent, break_long_words=False) + "\n"
