"""docs/contract.md has every name that components declare and other code reads."""

import ast
import re
from importlib import import_module
from itertools import chain

import pytest
from declared_names import KINDS, LIBRARY, declared

from docs.contract_kinds import KINDS as CONTRACTS
from docs.contract_page import described_members
from docs.members import Member, members
from xformer_kit.optim import OptimizerAttributes
from xformer_kit.registry import traits
from xformer_kit.tensors.component import Component

MOST = 48  # attributes of all kinds


def contract(kind: str) -> dict[str, Member]:
    """The members that the page has for a kind, with its traits."""
    found = CONTRACTS[kind]
    base = getattr(import_module(found.module), found.base)
    own = members(getattr(traits, found.traits)) if found.traits else {}
    return {**members(Component), **own, **{m.name: m for m in described_members(base)}}


PAGE = {kind: contract(kind) for kind in KINDS}


@pytest.mark.extended
def test_the_page_has_what_components_declare():
    of_any = set().union(*PAGE.values(), members(OptimizerAttributes))
    missing = {
        name: left
        for name, kinds in declared().items()
        if (left := {kind for kind in kinds if name not in PAGE.get(kind, of_any)})
    }
    assert missing == {}


def attributes() -> set[str]:
    found = chain.from_iterable(of_kind.values() for of_kind in PAGE.values())
    return {member.name for member in found if not member.is_method}


def test_the_package_reads_each_attribute():
    read = set()
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+", str(node.value)):
                read.add(node.value)  # by getattr
    assert attributes() - read == set()


def test_there_are_few():
    assert len(attributes()) <= MOST, sorted(attributes())
