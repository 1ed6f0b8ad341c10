import json

import pytest

from xformer_kit.config import GROUPS, NESTED_GROUPS
from xformer_kit.inspect import components
from xformer_kit.registry import ConfigError, Registry

ALL = GROUPS | NESTED_GROUPS
COMPONENTS = [(registry, name) for registry in ALL.values() for name in registry]


def test_every_component_has_a_summary_of_one_line():
    summaries = {f"{r.group} {name}": components.summary(r[name]) for r, name in COMPONENTS}
    faulty = {c: s for c, s in summaries.items() if not 3 < len(s) < 140 or "arXiv" in s}
    assert faulty == {}


def test_every_option_has_a_unit_or_a_meaning():
    without = [
        f"{registry.group} {name}.{row.name}"
        for registry, name in COMPONENTS
        for row in components.option_rows(registry, name)
        if not row.meaning
    ]
    assert without == []


def test_the_table_is_plain_data_of_every_component():
    table = json.loads(json.dumps(components.table(ALL.values())))
    assert {(kind, name) for kind, names in table.items() for name in names} == {
        (r.group, n) for r, n in COMPONENTS
    }
    assert table["attn"]["multi_head"]["kv_heads"] == {"type": "int | null", "default": None}
    assert table["optim"]["adamw"]["betas"] == {"type": "list of 2 float", "default": [0.9, 0.99]}


@pytest.mark.parametrize("word", ["objective", "task"])
def test_a_kind_is_found_by_its_group_too(word):
    assert components.find_kind(word, GROUPS).kind == "objective"


def test_a_fault_of_an_unknown_kind_names_the_most_similar_one():
    with pytest.raises(
        ConfigError,
        match=r"^components: no kind is called 'atn'\. Did you mean 'attn'\? Known: attn, ",
    ):
        components.find_kind("atn", GROUPS)


@pytest.mark.parametrize("word", ["rotary", "rope"])
def test_a_fault_of_a_component_in_place_of_a_kind_names_its_kind(word):
    with pytest.raises(
        ConfigError,
        match=rf"^components: '{word}' is a component of the kind position\."
        r" Try: xformer components position rotary$",
    ):
        components.find_kind(word, GROUPS)


@pytest.mark.parametrize(
    ("doc", "summary"),
    [
        ("x + f(x) (Xiong et al., 2020, arXiv:2002.04745, figure 1b).", "x + f(x)"),
        ("Half, e.g. of all (a, b). More of it.", "Half, e.g. of all (a, b)"),
        (
            "One\nof two (f(x)) in it (Su et al., 2021, eq. 34), and on.\n\nMore.",
            "One of two (f(x)) in it, and on",
        ),
        ("", ""),
    ],
)
def test_the_first_sentence_of_a_docstring(doc, summary):
    def component():
        pass

    component.__doc__ = doc
    assert components.summary(component) == summary


def test_the_generated_docstring_of_a_dataclass_is_ignored():
    from dataclasses import dataclass

    @dataclass
    class WithoutDocstring:
        a: int = 1

    assert components.doc(WithoutDocstring) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1e-05, "1e-05"),
        (10_000.0, "10000"),
        ([0.9, None], "[0.9, null]"),
        ("???", "required"),
    ],
)
def test_values_are_formatted_as_on_the_command_line(value, text):
    assert components.as_yaml(value) == text


def test_a_comment_after_several_options_belongs_to_the_last():
    registry = Registry("kind")

    @registry.register("one")
    class One:
        def __init__(self, *, a: int = 1, b: int = 2):  # about b
            pass

    assert [row.meaning for row in components.option_rows(registry, "one")] == ["", "about b"]
