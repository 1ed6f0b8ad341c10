import json

import pytest

from xformer_kit.config import GROUPS, INNER
from xformer_kit.inspect import components
from xformer_kit.registry import ConfigError, Registry

ALL = GROUPS | INNER
COMPONENTS = [(registry, name) for registry in ALL.values() for name in registry]
IDS = [f"{registry.group} {name}" for registry, name in COMPONENTS]


@pytest.mark.parametrize(("registry", "name"), COMPONENTS, ids=IDS)
def test_every_component_says_what_it_is_in_one_line(registry, name):
    said = components.summary(registry[name])
    assert 3 < len(said) < 140, said
    assert "arXiv" not in said


@pytest.mark.parametrize(("registry", "name"), COMPONENTS, ids=IDS)
def test_every_option_has_a_unit_or_a_meaning(registry, name):
    assert [row.name for row in components.rows(registry, name) if not row.meaning] == []


def test_the_table_is_plain_data_of_every_component():
    table = json.loads(json.dumps(components.table(ALL.values())))
    assert {(kind, name) for kind, names in table.items() for name in names} == {
        (r.group, n) for r, n in COMPONENTS
    }
    assert table["attn"]["multi_head"]["kv_heads"] == {"type": "int | null", "default": None}
    assert table["optim"]["adamw"]["betas"] == {"type": "list of 2 float", "default": [0.9, 0.99]}


@pytest.mark.parametrize("word", ["objective", "task"])
def test_a_kind_answers_to_its_group_too(word):
    assert components.find_kind(word, GROUPS).kind == "objective"


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(
        ConfigError,
        match=r"^components: no kind is called 'atn'\. Did you mean 'attn'\? Known: attn, ",
    ):
        components.find_kind("atn", GROUPS)


@pytest.mark.parametrize("word", ["rotary", "rope"])
def test_a_component_in_place_of_a_kind_is_answered_with_its_kind(word):
    with pytest.raises(
        ConfigError,
        match=rf"^components: '{word}' is no kind but a position\."
        r" Try xformer components position rotary\.$",
    ):
        components.find_kind(word, GROUPS)


@pytest.mark.parametrize(
    ("doc", "said"),
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
def test_the_first_sentence_of_a_docstring(doc, said):
    def component():
        pass

    component.__doc__ = doc
    assert components.summary(component) == said


def test_what_a_dataclass_writes_of_itself_is_no_docstring():
    from dataclasses import dataclass

    @dataclass
    class Mute:
        a: int = 1

    assert components.doc(Mute) == ""


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
def test_values_are_written_as_on_the_command_line(value, text):
    assert components.written(value) == text


def test_one_comment_behind_several_options_is_of_the_last():
    registry = Registry("kind")

    @registry.register("one")
    class One:
        def __init__(self, *, a: int = 1, b: int = 2):  # about b
            pass

    assert [row.meaning for row in components.rows(registry, "one")] == ["", "about b"]
