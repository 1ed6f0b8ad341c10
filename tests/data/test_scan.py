"""SCAN: the grammar, the published numbers, and all published files."""

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.corpus.scan import Scan, Split, grammar
from xformer_kit.registry import Context

pytestmark = pytest.mark.extended

SHARED = Path(
    os.environ.get("XFORMER_KIT_DATA", Path(__file__).parents[3] / "shared" / "data"), "scan"
)
SPLITS = get_args(Split)


@pytest.fixture(scope="module")
def commands():
    return {command: " ".join(actions) for command, actions in grammar().items()}


def published(name):
    """The (command, actions) of a published file, in its order."""
    file = SHARED / f"{name}.txt.gz"
    if not file.exists():
        pytest.skip("the files of SCAN are not here")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    return [tuple(line.removeprefix("IN: ").split(" OUT: ")) for line in lines]


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("jump", "JUMP"),
        ("jump left", "LEFT JUMP"),
        ("turn right", "RIGHT"),
        ("turn left twice", "LEFT LEFT"),
        ("jump thrice", "JUMP JUMP JUMP"),
        ("turn opposite left", "LEFT LEFT"),
        ("jump around right", "RIGHT JUMP RIGHT JUMP RIGHT JUMP RIGHT JUMP"),
        ("jump opposite left and walk thrice", "LEFT LEFT JUMP WALK WALK WALK"),
        ("run twice after look left", "LEFT LOOK RUN RUN"),
    ],
)
def test_scan_commands_have_the_expected_actions(commands, command, actions):
    short = commands[command].replace("I_", "").replace("TURN_", "")
    assert short == actions


def test_scan_has_20910_commands(commands):
    assert len(commands) == 20_910
    assert max(len(actions.split()) for actions in commands.values()) == 48
    assert len({word for command in commands for word in command.split()}) == 13
    assert len({action for actions in commands.values() for action in actions.split()}) == 6
    assert not {"turn", "jump and", "walk and walk and walk"} & set(commands)


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [
        ("simple", 16_728, 4_182),
        ("length", 16_990, 3_920),
        ("addprim_jump", 14_670, 7_706),
        ("addprim_turn_left", 21_890, 1_208),
    ],
)
def test_sizes_are_the_published_ones(split, train, test):
    sizes = {
        component: sum(1 for _ in Scan(split=split).pairs(component)) for component in Scan.splits
    }
    assert (sizes["train"] + sizes["valid"], sizes["test"]) == (train, test)
    assert 0.03 < sizes["valid"] / train < 0.07


@pytest.mark.parametrize("split", ["simple", "length", "addprim_jump", "addprim_turn_left"])
def test_pairs_are_those_of_the_published_files(split):
    corpus = Scan(split=split)
    train = Counter([*corpus.pairs("train"), *corpus.pairs("valid")])
    assert train == Counter(published(f"tasks_train_{split}"))
    assert Counter(corpus.pairs("test")) == Counter(published(f"tasks_test_{split}"))


def test_all_commands_are_those_of_the_published_file(commands):
    assert set(commands.items()) == set(published("tasks"))


@pytest.mark.parametrize(("split", "longest"), [("length", 22), ("length_cutoff_26", 26)])
def test_scan_length_splits_are_cut_by_the_number_of_actions(split, longest):
    lengths = {
        component: {len(actions.split()) for _, actions in Scan(split=split).pairs(component)}
        for component in Scan.splits
    }
    assert max(lengths["train"]) == longest >= max(lengths["valid"])
    assert min(lengths["test"]) > longest and max(lengths["test"]) == 48


@pytest.mark.parametrize(
    ("split", "held_out"), [("addprim_jump", "jump"), ("addprim_turn_left", "turn left")]
)
def test_a_held_out_primitive_is_trained_only_by_itself(split, held_out):
    train = [command for command, _ in Scan(split=split, valid=0.999).pairs("train")]
    assert train.count(held_out) > 1000
    train = [command for command, _ in Scan(split=split).pairs("train")]
    assert not [
        command for command in train if f" {held_out} " in f" {command} " and command != held_out
    ]
    assert all(f" {held_out} " in f" {command} " for command, _ in Scan(split=split).pairs("test"))


@pytest.mark.parametrize("split", SPLITS)
def test_no_command_is_in_two_splits(split):
    components = [
        {command for command, _ in Scan(split=split).pairs(component)} for component in Scan.splits
    ]
    assert len(set.union(*components)) == sum(map(len, components)) == 20_910


def test_options_change_the_fingerprint():
    prints = {Scan(split=split).fingerprint() for split in SPLITS} | {Scan(valid=0.1).fingerprint()}
    assert len(prints) == len(SPLITS) + 1


def test_faults():
    assert messages(
        CORPORA.faults({"name": "scan", "split": "lenght", "valid": 0.1}, "data", Context())
    ) == [
        "data.split: no choice is called 'lenght'. Did you mean 'length'? "
        "Known: simple, length, length_cutoff_26, addprim_jump, addprim_turn_left."
    ]
    assert messages(CORPORA.faults({"name": "scan", "valid": 1.0}, "data", Context())) == [
        "data.valid: must be above 0 and below 1; got 1.0. Try 0.05."
    ]
