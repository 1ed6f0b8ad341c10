"""docs/contract.md is written from the code, and leaves nothing without a meaning."""

import difflib
import inspect
import re
from importlib import import_module

from docs.contract_kinds import KINDS, SHARED, TYPE_NAMES
from docs.contract_page import PAGE, described_members, in_package, page
from docs.kinds import KINDS as REGISTRIES
from docs.members import function, members, type_names
from xformer_kit.registry import traits
from xformer_kit.registry.signature import parameters
from xformer_kit.tensors.component import Component

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_that_of_the_code():
    """If not: python -m docs.contract_page"""
    lines = difflib.unified_diff(TEXT.splitlines(), page().splitlines(), lineterm="", n=0)
    assert list(lines) == []


def test_every_import_of_the_page_works():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    traits = sum(bool(contract.traits) for contract in KINDS.values())
    assert len(blocks) == len(KINDS) + len(SHARED) + traits
    for block in blocks:
        exec(block, {})


def described_items():
    """The classes and functions of the page."""
    yield Component
    for contract in KINDS.values():
        names = filter(None, (contract.base, *contract.also))
        yield from (getattr(import_module(contract.module), name) for name in names)
        yield from [getattr(traits, contract.traits)] if contract.traits else []
    for _, module, names in SHARED.values():
        yield from (getattr(import_module(module), name) for name in names)


def test_every_member_function_and_type_has_a_meaning():
    without = [
        f"{item.__name__}.{member.name}"
        for item in filter(inspect.isclass, described_items())
        for member in described_members(item)
        if not member.text and member.name != "__init__"
    ]
    functions = filter(inspect.isfunction, described_items())
    without += [item.__name__ for item in functions if not function(item).text]
    for module, names in TYPE_NAMES.items():
        found = type_names(import_module(module))
        without += [name for name in names if not found[name].text]
    assert without == []


def test_what_is_passed_has_a_meaning_and_the_type_that_components_annotate():
    without, other = [], {}
    for kind in KINDS:
        registry = REGISTRIES[kind]
        passed = inspect.get_annotations(registry.caller_arguments)
        described = members(registry.caller_arguments) if passed else {}
        without += [f"{kind} {name}" for name in passed if not described[name].text]
        for name in filter(lambda name, of=registry: in_package(of[name]), registry):
            for argument in registry.model_arguments(name):
                annotation = parameters(registry[name])[argument].annotation
                if annotation != passed[argument]:
                    other[f"{kind} {name}.{argument}"] = annotation
    assert (without, other) == ([], {})


def test_each_kind_has_an_example():
    sections = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")}
    assert [kind for kind in KINDS if "\nExamples: " not in sections[kind]] == []
