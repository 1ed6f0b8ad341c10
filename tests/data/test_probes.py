"""Probes: what is asked follows from what stands before it; an example is a pure function of seed,
split and index.
"""

import pickle
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from refusing import refused

from tests.messages import messages
from xformer_kit.data.batch import collate
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.corpus.probes.base import FRESH
from xformer_kit.data.labelled import labelled
from xformer_kit.data.prepare import prepare
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import ConfigError, Context

PROBES = sorted(
    name
    for name, part in CORPORA.items()
    if part.form == "labelled" and "xformer_kit" in part.__module__
)
SMALL = {
    "recall": {"vocabulary": 20, "length": 24, "pairs": 4},
    "induction": {"vocabulary": 5, "length": 12},
    "copy": {"length": 5},
    "reverse": {"length": 5},
    "sort": {"length": 5},
    "selective_copy": {"vocabulary": 4, "length": 12, "marked": 3},
    "addition": {"length": 3},
    "parity": {"length": 6},
    "dyck": {"types": 3, "depth": 3, "length": 14},
}


def make(name, **options):
    return CORPORA.create({"name": name, **SMALL[name], **options})


def told(probe, example):
    """Its words, with brackets [ ] around those that are asked."""
    words = probe.words()
    pairs = zip(example["tokens"].tolist(), example["labels"].tolist(), strict=True)
    return [f"[{words[t]}]" if label >= 0 else words[t] for t, label in pairs]


def sample(probe, split="train", count=200):
    data = probe.dataset(split)
    return [told(probe, data[i]) for i in range(count)]


def faults(name, **options):
    return messages(CORPORA.faults({"name": name, **options}, "data", Context()))


def bare(words):
    return [word.strip("[]") for word in words]


def test_all_probes_are_here():
    assert set(PROBES) == set(SMALL)


# Laws of all.


@pytest.mark.parametrize("name", PROBES)
def test_an_example_is_a_pure_function_of_seed_split_and_index(name):
    one, two = make(name), make(name)
    far = FRESH - 1
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
def test_labels_are_the_tokens_where_asked_and_all_are_words(name):
    probe = make(name)
    words = probe.words()
    assert len(set(words)) == len(words) and all(word.split() == [word] for word in words)
    seen = set()
    for i in range(300):
        example = probe.dataset("train")[i]
        tokens, labels = example["tokens"], example["labels"]
        assert tokens.dtype == labels.dtype == np.int64 and tokens.shape == labels.shape
        asked = labels >= 0
        assert (
            asked.any()
            and not asked[0]
            and (labels[asked] == tokens[asked]).all()
            and (labels[~asked] == -1).all()
        )
        assert len(tokens) == probe.longest
        seen |= set(tokens.tolist())
    assert seen == set(range(len(words))), "a word never comes, or a token is none"


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
    assert list(lengths["test"]) == [probe.longest] and max(lengths["train"]) < probe.longest
    batch = collate([probe.dataset("train")[i] for i in range(20)])
    real = batch["tokens"].real
    assert real.sum() == sum(len(probe.dataset("train")[i]["tokens"]) for i in range(20))
    assert (batch["labels"][~real] == -1).all()


# Each by eye: an answer is worked out from what stands before it.


def test_recall():
    probe = make("recall")
    for words in sample(probe):
        shown, rest = words[:8], words[8:]
        values = dict(zip(shown[::2], shown[1::2], strict=True))
        assert len(values) == len(set(values.values())) == 4
        assert all(key.startswith("k") and value.startswith("v") for key, value in values.items())
        asked = {before: word for before, word in pairwise(rest) if word.startswith("[")}
        assert asked == {key: f"[{value}]" for key, value in values.items()}
        assert [word for word in rest if word.startswith("k")] == list(asked), (
            "a key stands where it is not asked"
        )


def test_recall_asks_soon_where_the_power_is_small():
    def gap(power):
        at = [
            words.index(next(w for w in words if w.startswith("[")))
            for words in sample(make("recall", power=power, pairs=1))
        ]
        return sum(at) / len(at)

    assert gap(0.01) + 2 < gap(1.0) < gap(4.0)
    places = Counter(
        words.index(next(w for w in words if w.startswith("[")))
        for words in sample(make("recall", power=1.0, pairs=1), count=2200)
    )
    assert set(places) == set(range(3, 24, 2)) and min(places.values()) > 140, (
        "power 1 is uniform over the 11 slots"
    )


def test_recall_with_blanks_between():
    for words in sample(make("recall", filler="blank")):
        assert Counter(words)["."] == 24 - 4 * 4 and words[-1] != "[.]"


def test_induction():
    for words in sample(make("induction")):
        assert words.count("*") == 2 and words[-2] == "*"
        assert (
            words[-1] == f"[{words[words.index('*') + 1]}]"
            and sum(word.startswith("[") for word in words) == 1
        )
    firsts = {words.index("*") for words in sample(make("induction"))}
    assert firsts == set(range(9)), "the mark stands anywhere but where its word would be a mark"


def test_copy_reverse_and_sort():
    def number(word):
        return int(word[1:])

    for name, answer in {
        "copy": lambda given: given,
        "reverse": lambda given: given[::-1],
        "sort": lambda given: sorted(given, key=number),
    }.items():
        for words in sample(make(name)):
            given, bar, asked = words[:5], words[5], words[6:]
            assert bar == "|" and asked == [f"[{word}]" for word in answer(given)]


def test_selective_copy():
    places = set()
    for words in sample(make("selective_copy")):
        given, bar, asked = words[:12], words[12], words[13:]
        assert (
            bar == "|"
            and asked == [f"[{word}]" for word in given if word != "."]
            and len(asked) == 3
        )
        places |= {i for i, word in enumerate(given) if word != "."}
    assert places == set(range(12))
    assert {len(words) for words in sample(make("selective_copy", test_length=30), "test", 5)} == {
        34
    }


def test_addition():
    for answer, order in {"reversed": -1, "plain": 1}.items():
        for words in sample(make("addition", answer=answer)):
            first, second = (int("".join(part)) for part in (words[:3], words[4:7]))
            total = int("".join(bare(words[8:])[::order]))
            assert (
                (words[3], words[7]) == ("+", "=") and first + second == total and len(words) == 12
            )
            assert all(word.startswith("[") for word in words[8:]) and not any(
                "[" in word for word in words[:8]
            )
    carries = [words for words in sample(make("addition", length=1)) if words[-1] == "[1]"]
    assert carries and all(int(w[0]) + int(w[2]) >= 10 for w in carries)


def test_parity():
    for words in sample(make("parity")):
        ones = words[:6].count("1")
        assert words[6:] == ["|", "[odd]" if ones % 2 else "[even]"]
    for words in sample(make("parity", steps=True)):
        bits, asked = words[::2], words[1::2]
        assert asked == ["[odd]" if bits[: i + 1].count("1") % 2 else "[even]" for i in range(6)]


def test_dyck():
    depths = set()
    for words in sample(make("dyck")):
        stack = []
        for word in words:
            if word in ("(", "[", "{"):
                stack.append({"(": "[)]", "[": "[]]", "{": "[}]"}[word])
                depths.add(len(stack))
            else:
                assert word == stack.pop(), "which one closes follows from what is open"
        assert not stack and len(words) == 14
    assert depths == {1, 2, 3}


def test_dyck_has_names_for_any_number_of_types():
    assert make("dyck", types=6).words() == [
        "(",
        "[",
        "{",
        "<",
        "(4",
        "(5",
        ")",
        "]",
        "}",
        ">",
        "4)",
        "5)",
    ]


# Their stream of numbers.


def test_draws_are_uniform_and_differ():
    draw = RandomStream("a key")
    counts = np.bincount(draw.below(7, 70_000), minlength=7)
    assert (abs(counts - 10_000) < 500).all()  # 5 standard deviations
    assert {RandomStream("k", i).one(2, 4) for i in range(60)} == {2, 3, 4}
    fractions = draw.fractions(10_000)
    assert fractions.min() > 0 and fractions.max() <= 1 and abs(fractions.mean() - 0.5) < 0.02
    assert not np.array_equal(RandomStream("a").bits(4), RandomStream("b").bits(4))
    whole, parts = RandomStream("a"), RandomStream("a")
    assert whole.bits(6).tolist() == [
        *parts.bits(2).tolist(),
        *parts.bits(0).tolist(),
        *parts.bits(4).tolist(),
    ]


def test_splitmix64_gives_its_published_numbers():
    """The first outputs for seed 1234567 of Vigna's reference implementation
    (https://prng.di.unimi.it/splitmix64.c).
    """
    draw = RandomStream()
    draw.at = 1234567
    assert draw.bits(3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("n", "count"), [(8, 8), (8, 3), (1000, 5), (1000, 249), (100_000, 64)])
def test_some_are_different_ones_in_any_order(n, count):
    draws = [RandomStream("some", i).some(n, count) for i in range(20)]
    for drawn in draws:
        assert (
            len(drawn) == count == len(set(drawn.tolist())) and drawn.min() >= 0 and drawn.max() < n
        )
    assert any((np.diff(drawn) < 0).any() for drawn in draws)
    assert len({str(drawn.tolist()) for drawn in draws}) == 20


def test_some_take_each_alike():
    counts = np.bincount(
        np.concatenate([RandomStream(i).some(40, 4) for i in range(4000)]), minlength=40
    )
    assert (abs(counts - 400) < 100).all()  # 5 standard deviations


# What is said of wrong options, and how a run reads them.


def test_faults_by_eye():
    assert faults("recall", pairs=20, vocabulary=7) == [
        (
            "data.length: must be at least 4 * pairs, a key and its value twice; got 64 and"
            " pairs=20. Try 80."
        ),
        (
            "data.vocabulary: must be even and at least 2 * pairs, as keys and values of an example"
            " differ; got 7 and pairs=20. Try 40."
        ),
    ]
    assert faults("recall", power=0.0) == [
        "data.power: must be above 0 and at most 50; got 0.0. Try 0.01."
    ]
    assert faults("sort", length=10, shortest=20) == [
        "data.shortest: must be at most length; got 20 and 10. Try 10."
    ]
    assert faults("dyck", length=7) == [
        "data.length: must be even, as every bracket is closed; got 7. Try 8."
    ]
    assert faults("selective_copy", length=8) == [
        "data.length: must be at least marked; got 8 and 16. Try 64."
    ]
    assert faults("copy", vocabulary=2**40) == [
        "data.vocabulary: must be at most 1,048,576; got 1,099,511,627,776. Try 16."
    ]
    assert faults("parity", examples=0, length=0) == [
        "data.examples: must be at least 1; got 0.",
        "data.length: must be at least 1; got 0.",
    ]
    assert faults("addition", answer="backwards") == [
        "data.answer: no choice is called 'backwards'. Known: reversed, plain."
    ]


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
    assert len(probe.dataset("train")[0]["tokens"]) == probe.longest


def test_a_run_reads_a_probe_with_its_own_words_and_writes_nothing(tmp_path):
    node = {"name": "copy", "length": 5, "seq_len": 10, "cache": str(tmp_path)}
    prepared = prepare({"data": node, "tokenizer": {"name": "byte"}})
    assert (len(prepared.train), len(prepared.valid), len(prepared.test)) == (2**31, 1000, 1000)
    assert (
        prepared.tokenizer.vocab_size == 27
        and prepared.folder is None
        and not list(tmp_path.iterdir())
    )
    tokens = prepared.train[0]["tokens"]
    text = prepared.tokenizer.decode(tokens)
    assert text.split() == bare(told(make("copy"), prepared.train[0]))
    assert prepared.tokenizer.encode(text).tolist() == tokens.tolist()
    other = prepare({"data": node | {"examples_seed": 1}, "tokenizer": {"name": "byte"}})
    assert other.fingerprint != prepared.fingerprint


def test_a_window_must_hold_an_example():
    sentence = (
        "data.seq_len: must hold the longest example, 11 tokens with the last one only predicted;"
        " got 9. Try 10 or more, or shorter examples."
    )
    with pytest.raises(ConfigError) as error:
        labelled(make("copy"), 9)
    assert str(error.value) == sentence
    assert labelled(make("copy"), 10)["folder"] is None


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "data.seq_len=62",
            (
                "data.seq_len: must hold the longest example, 64 tokens with the last one only"
                " predicted; got 62. Try 63 or more, or shorter examples."
            ),
        ),
        (
            "model.vocab_size=100",
            (
                "model.vocab_size: must hold the tokenizer's 8192 tokens; got 100. null is the"
                " tokenizer's."
            ),
        ),
    ],
)
def test_a_config_that_a_probe_does_not_fit_is_refused(word, sentence):
    assert refused(
        ["model=decoder", "experiment=null", "data=recall", "data.seq_len=63", word]
    ) == [sentence]
