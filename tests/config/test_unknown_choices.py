"""Unknown choices of a group: similar names, the first of many, and files of this directory."""

import pytest

from xformer_kit.config import preflight
from xformer_kit.config.line.unknown_choices import unknown_choice
from xformer_kit.registry import ConfigError


def faults_of(*words):
    with pytest.raises(ConfigError) as error:
        preflight([*words])
    return [str(fault) for fault in error.value.faults]


@pytest.mark.parametrize("group", ["attn", "data", "model", "task"])
@pytest.mark.parametrize("name", ["multi_haed", "zzzz", "gpt2", "csv", "{dim: 8}"])
def test_only_options_in_a_sweep_have_a_message_of_their_own(group, name):
    single, swept = (unknown_choice(group, name, ["text"], swept) for swept in (False, True))
    assert ("a plain sweep takes names, not options" in str(swept)) == name.startswith("{")
    assert (single == swept) == (not name.startswith("{"))


def test_of_many_names_only_the_similar_one_is_listed():
    assert faults_of("study=norm_plcement") == [
        "study: no choice is called 'norm_plcement'. Did you mean 'norm_placement'?"
    ]


@pytest.mark.parametrize("word", ["study=zzzz", "study.seeds=2"])
def test_of_many_names_the_first_ones_are_listed_and_how_all_are(word):
    (fault,) = faults_of(word)
    listed = fault.partition("ladder, ")[2]
    assert listed.count(", ") == 9
    assert listed.endswith(" more, which python train.py --help lists.")


def test_a_name_of_components_that_could_not_be_read_has_no_similar_name():
    assert faults_of("components=[none.py]", "attn=mine", "attn.knob=3")[1:] == [
        "attn: no attn is called 'mine'. It may be one of components, which could not be read."
    ]


def test_a_python_file_is_named_only_if_it_uses_the_package_and_has_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("MINE = 'mine'\n")
    (tmp_path / "b.py").write_text("from xformer_kit.attention import ATTENTIONS  # mine\n")
    assert "is here" not in faults_of("experiment=mine")[0]
    assert " has it: " not in faults_of("attn=mine")[0]
    (tmp_path / "my file.py").write_text("raise RuntimeError  # xformer_kit 'mine'\n")
    assert faults_of("attn=mine") == [
        "attn: no attn is called 'mine'. my file.py has it: add components=['my file.py']."
    ]
    assert faults_of("experiment='" + "x" * 300 + "'")  # no file can have this name


@pytest.mark.parametrize(
    "words",
    [
        ["attn=linear", "kernel=flash"],
        ["tokenizer=tiktoken"],
        ["kernel=flash", "-m", "attn=linear,cosine"],
        ["tokenizer=tiktoken", "kernel=flash", "attn=linear"],
    ],
)
def test_the_component_that_is_proposed_has_no_faults_of_its_own(words):
    unknown = {"tokenizer=tiktoken", "kernel=flash"} & set(words)
    assert len({fault.partition(" [job")[0] for fault in faults_of(*words)}) == len(unknown)


def test_faults_that_do_not_depend_on_an_unknown_choice_are_reported_with_it():
    found = faults_of("kernel=flash", "attn=linear", "model.dim=7", "tokenizer=tiktoken")
    found += faults_of("tokenizer=tiktoken", "tokenizer.pth=x", "kernel=flash", "kernel.rows=1")
    assert [fault.partition(":")[0] for fault in found] == [
        *("kernel", "tokenizer", "attn.heads"),
        *("tokenizer", "kernel", "kernel.rows", "tokenizer.pth"),
    ]
