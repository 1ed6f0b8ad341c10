"""The core does not know which components the zoo has: no file names one of them.

A file names a component by its class, by a string with its kind (`attn=performer`, `attn
'performer'`), or by a string that is the name or has it in quotes. The last form is no fault if the
name is also a word of the core: an option or one of its choices, a parameter, an attribute, a
registered name. So English words such as distance, scale or lambda are none.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest

from xformer_kit.config.options.groups import GROUPS, NESTED_GROUPS
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.extra import EXTRAS
from xformer_kit.registry.zoo import ZOO

FOLDERS = ("model", "plan", "kernel", "config", "laws", "generate")
FILES = [path for folder in FOLDERS for path in sorted((ZOO.parent / folder).rglob("*.py"))]
REGISTRIES = [registry for registry in (GROUPS | NESTED_GROUPS).values() if registry.zoo]


@cache
def components() -> dict[str, set[str]]:
    """Name of a component of the zoo -> the words of its groups, e.g. attn.score and score."""
    found: dict[str, set[str]] = {}
    for registry in REGISTRIES:
        for name in registry.zoo:
            found.setdefault(name, set()).update({registry.kind, registry.group.split(".")[-1]})
    return found


@cache
def classes() -> frozenset[str]:
    return frozenset(r[name].__name__ for r in REGISTRIES for name in r.zoo)


def choices(annotation: Any) -> Iterator[Any]:
    """The values of the Literals in a type."""
    for arg in get_args(annotation):
        yield from [arg] if get_origin(annotation) is Literal else choices(arg)


@cache
def words_of_the_core() -> frozenset[str]:
    """Options with their choices, parameters, attributes and registered names of the core."""
    found: set[str] = set()
    for registry in (GROUPS | NESTED_GROUPS).values():
        for name in registry.keys() - registry.zoo.keys():
            options = registry.options(name)
            found |= {name, *options, *(c for o in options.values() for c in choices(o.type))}
    settings = (option for group in SETTINGS for option in SETTINGS.options(group).values())
    found |= {choice for option in settings for choice in choices(option.type)}
    for path in sorted(ZOO.parent.rglob("*.py")):
        if ZOO not in path.parents:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.arg(arg=word) | ast.Attribute(attr=word) | ast.Name(id=word):
                        found.add(word)
    return frozenset(found)


def named(text: str) -> Iterator[str]:
    """The components of the zoo that a string names."""
    for name, kinds in components().items():
        kind = rf"\b(?:{'|'.join(sorted(kinds))})"
        if re.search(rf"{kind}(?:\.name)?\s*[=:]\s*{name}\b|{kind}\s+['`]{name}['`]", text):
            yield name
        is_name = text == name or re.search(rf"(?<![\w'`])['`]{name}['`]", text)
        if is_name and name not in words_of_the_core():
            yield name


def mentions(source: str) -> list[str]:
    """The components of the zoo that a file names."""
    tree, found = ast.parse(source), set[str]()
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(named(node.value))
        elif isinstance(node, ast.JoinedStr):
            components = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            found |= set(named("".join(map(str, components))))
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            word = {ast.Name: "id", ast.Attribute: "attr", ast.alias: "name"}[type(node)]
            found |= {getattr(node, word)} & classes() - own
    return sorted(found)


def named_in_files(search: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """File of the core -> the names that a search finds in it."""
    found = {str(path): search(path.read_text(encoding="utf-8")) for path in FILES}
    return {path: names for path, names in found.items() if names}


def test_no_file_of_the_core_names_a_component_of_the_zoo():
    assert named_in_files(mentions) == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("if name == 'performer': ...", ["performer"]),
        ("ways = 'Choose attn=performer or linear'", ["performer"]),
        ("ways = f'{name} needs attn.score=entmax'", ["entmax"]),
        ("said = \"placement 'gru' adds nothing\"", ["gru"]),
        ("isinstance(attention, Performer)", ["Performer"]),
        ("ways = {'position': 'kerple'}", ["kerple"]),
        ("norm = {'name': 'derf'}", ["derf"]),
        ("ways = 'attn=distance'", ["distance"]),
        ("distance = tokens['distance']", []),
        ("factor = options['scale'] * 'the distance, at most'", []),
        ("'''A fixed lambda; the cosine of a residual.'''", []),
    ],
)
def test_a_name_is_found_and_an_english_word_is_not(line, found):
    assert mentions(line) == found


def test_no_file_of_the_core_names_an_extra():
    def extras(text: str) -> list[str]:
        return [name for name in EXTRAS if re.search(rf"\b{name}\b", text)]

    assert named_in_files(extras) == {}
