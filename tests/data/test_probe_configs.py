"""Probes in a config: wrong options, and how a run prepares them."""

import pytest
from refusals import refused

from tests.data.probe_examples import bare, faults, make, words_of
from xformer_kit.data.corpus import Corpus
from xformer_kit.data.preparation.labelled import prepare_labelled
from xformer_kit.data.preparation.prepare import prepare
from xformer_kit.registry import ConfigError


def test_wrong_options_are_refused():
    assert faults("recall", pairs=20, vocabulary=7) == [
        "data.length: must be at least 80 (4 * pairs); got 64.",
        (
            "data.vocabulary: must be even and at least 2 * pairs, as keys and values of an example"
            " differ; got 7 and pairs=20."
        ),
    ]
    assert faults("recall", power=0.0) == [
        "data.power: must be above 0 and at most 50; got 0.0. Try 0.01."
    ]
    assert faults("sort", length=10, shortest=20) == [
        "data.shortest: must be at most 10 (length); got 20."
    ]
    assert faults("dyck", length=7) == [
        "data.length: must be even, as every bracket is closed; got 7."
    ]
    assert faults("selective_copy", length=8) == [
        "data.length: must be at least 16 (marked); got 8."
    ]
    assert faults("copy", vocabulary=2**40) == [
        "data.vocabulary: must be at most 1,048,576; got 1099511627776."
    ]
    assert faults("parity", examples=0, length=0) == [
        "data.examples: must be at least 1; got 0.",
        "data.length: must be at least 1; got 0.",
    ]
    assert faults("addition", answer="backwards") == [
        "data.answer: no choice is called 'backwards'. Known: reversed, plain."
    ]


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
    assert text.split() == bare(words_of(make("copy"), prepared.train[0]))
    assert prepared.tokenizer.encode(text).tolist() == tokens.tolist()
    other = prepare({"data": node | {"examples_seed": 1}, "tokenizer": {"name": "byte"}})
    assert other.fingerprint != prepared.fingerprint


def test_seq_len_must_hold_the_longest_example():
    sentence = (
        "data.seq_len: must hold the longest example, 11 tokens with the last one only predicted;"
        " got 9. Try 10 or more, or shorter examples."
    )
    with pytest.raises(ConfigError) as error:
        prepare_labelled(make("copy"), 9)
    assert str(error.value) == sentence
    assert prepare_labelled(make("copy"), 10)["folder"] is None


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
def test_a_config_with_a_window_or_vocabulary_that_is_too_small_is_refused(word, sentence):
    assert refused(
        ["model=decoder", "task_defaults=null", "data=recall", "data.seq_len=63", word]
    ) == [sentence]


def test_a_corpus_of_labelled_examples_must_be_a_probe():
    with pytest.raises(
        ConfigError, match=r"must derive from xformer_kit.data.corpus.Probe; got Own"
    ):

        class Own(Corpus):
            form = "labelled"
