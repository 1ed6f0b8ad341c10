"""Unknown choices of a group: similar names, and the first of many."""

import pytest

from xformer_kit.config import preflight
from xformer_kit.registry import ConfigError


def faults_of(*words):
    with pytest.raises(ConfigError) as error:
        preflight([*words])
    return [str(fault) for fault in error.value.faults]


def test_of_many_names_only_the_similar_one_is_listed():
    assert faults_of("study=norm_plcement") == [
        "study: no choice is called 'norm_plcement'. Did you mean 'norm_placement'?"
    ]


@pytest.mark.parametrize("word", ["study=zzzz", "study.seeds=2"])
def test_of_many_names_the_first_ones_are_listed_and_how_all_are(word):
    (fault,) = faults_of(word)
    listed, _, rest = fault.partition("external, ")[2].partition(" more, which ")
    assert listed.count(", ") == 8
    assert rest.startswith("python train.py --help lists.")


def test_options_of_an_unknown_choice_are_not_checked_and_other_options_are():
    found = faults_of("kernel=flash", "attn=linear", "model.dim=7", "tokenizer=tiktoken")
    found += faults_of("tokenizer=tiktoken", "tokenizer.pth=x", "kernel=flash", "optim.lrr=1")
    assert [fault.partition(":")[0] for fault in found] == [
        *("kernel", "tokenizer", "attn.heads"),
        *("tokenizer", "kernel", "optim.lrr"),
    ]
