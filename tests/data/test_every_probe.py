"""Laws of every probe: examples are pure functions of seed, split and index; labels are tokens."""

import pickle
from collections import Counter

import numpy as np
import pytest

from tests.data.probe_examples import PROBES, SMALL, faults, make, sample
from xformer_kit.data.batch import collate
from xformer_kit.data.corpus.probes.base import TRAIN_EXAMPLES


def test_every_registered_probe_has_a_small_example_here():
    assert set(PROBES) == set(SMALL)


@pytest.mark.parametrize("name", PROBES)
def test_an_example_is_a_pure_function_of_seed_split_and_index(name):
    one, two = make(name), make(name)
    far = TRAIN_EXAMPLES - 1
    backwards = {i: two.dataset("train")[i]["tokens"].tolist() for i in (far, 7, 3, 0)}
    for i, tokens in backwards.items():
        assert one.dataset("train")[i]["tokens"].tolist() == tokens
    examples = {
        key: [
            make(name, examples_seed=key[0]).dataset(key[1])[i]["tokens"].tolist()
            for i in range(20)
        ]
        for key in [(0, "train"), (0, "valid"), (0, "test"), (1, "train")]
    }
    assert len({str(tokens) for tokens in examples.values()}) == 4
    assert (
        pickle.loads(pickle.dumps(one.dataset("valid")))[3]["tokens"].tolist()
        == one.dataset("valid")[3]["tokens"].tolist()
    )


@pytest.mark.parametrize("name", PROBES)
def test_labels_are_tokens_or_minus_one_and_every_word_occurs(name):
    probe = make(name)
    words = probe.words()
    assert len(set(words)) == len(words) and all(word.split() == [word] for word in words)
    used_words = set()
    for i in range(300):
        example = probe.dataset("train")[i]
        tokens, labels = example["tokens"], example["labels"]
        assert tokens.dtype == labels.dtype == np.int64 and tokens.shape == labels.shape
        predicted = labels >= 0
        assert (
            predicted.any()
            and not predicted[0]
            and (labels[predicted] == tokens[predicted]).all()
            and (labels[~predicted] == -1).all()
        )
        assert len(tokens) == probe.max_seq_len
        used_words |= set(tokens.tolist())
    assert used_words == set(range(len(words))), "a word never comes, or a token is none"


@pytest.mark.parametrize("name", PROBES)
def test_sizes_of_the_splits(name):
    probe = make(name, examples=7)
    assert [len(probe.dataset(split)) for split in probe.splits] == [2**31, 7, 7]
    assert (
        probe.dataset("valid")[-1]["tokens"].tolist()
        == probe.dataset("valid")[6]["tokens"].tolist()
    )
    with pytest.raises(IndexError):
        probe.dataset("valid")[7]


@pytest.mark.parametrize("name", PROBES)
def test_options_change_the_fingerprint(name):
    prints = [
        make(name).fingerprint(),
        make(name, examples_seed=1).fingerprint(),
        make(name, examples=5).fingerprint(),
    ]
    assert len(set(prints)) == 3 and make(name).fingerprint() == prints[0]


@pytest.mark.parametrize("name", sorted(set(PROBES) - {"recall", "selective_copy"}))
def test_lengths_are_drawn_and_the_test_set_may_be_longer(name):
    probe = make(name, shortest=4, length=8, test_length=16)
    lengths = {
        split: Counter(len(words) for words in sample(probe, split)) for split in probe.splits
    }
    assert len(lengths["train"]) == len(lengths["valid"]) == (3 if name == "dyck" else 5)
    assert (
        list(lengths["test"]) == [probe.max_seq_len] and max(lengths["train"]) < probe.max_seq_len
    )
    batch = collate([probe.dataset("train")[i] for i in range(20)])
    real = batch["tokens"].real
    assert real.sum() == sum(len(probe.dataset("train")[i]["tokens"]) for i in range(20))
    assert (batch["labels"][~real] == -1).all()


@pytest.mark.parametrize("name", PROBES)
def test_the_smallest_options_that_are_allowed_give_examples(name):
    smallest = {
        "recall": {"vocabulary": 2, "length": 4, "pairs": 1},
        "induction": {"vocabulary": 1, "length": 4},
    }
    sizes = {
        "selective_copy": ("vocabulary", "length", "marked"),
        "addition": ("length",),
        "parity": ("length",),
    }
    least = smallest.get(name) or dict.fromkeys(sizes.get(name, ("vocabulary", "length")), 1)
    if name == "dyck":
        least = {"types": 1, "depth": 1, "length": 2}
    assert faults(name, **least) == []
    probe = make(name, **least)
    assert len(probe.dataset("train")[0]["tokens"]) == probe.max_seq_len
