"""What a user's corpora and tokenizers return wrongly, or raise, is one sentence with the file."""

import numpy as np
import pytest

from xformer_kit.data.corpus import Corpus, Probe
from xformer_kit.data.corpus.base import PairCorpus
from xformer_kit.data.preparation.user_code import check_corpus, check_tokenizer
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.files.user_errors import user_errors
from xformer_kit.registry import ConfigError


class Bytes(Tokenizer):
    """A tokenizer of another package, without a fault."""

    vocab_size = 256

    def encode(self, text):
        return np.frombuffer(text.encode(), dtype=np.uint8)

    def pieces(self):
        return [bytes([i]) for i in range(256)]


class Two(Bytes):
    def encode(self, text):
        return np.arange(2)


BASE = "must define the methods and the attributes that its base class needs"


def tokenizer_message(**attributes):
    with pytest.raises(ConfigError) as error:
        check_tokenizer(type("Mine", (Bytes,), attributes)(), iter(["The end"]))
    return str(error.value)


def test_a_tokenizer_that_fits_the_contract_passes():
    check_tokenizer(Bytes(), iter(["The end"]))
    check_tokenizer(Bytes(), iter([]))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"vocab_size": None}, f"{BASE}; got TypeError in "),
        ({"pieces": Tokenizer.pieces}, "must define pieces. Change it in"),
        ({"encode": lambda _, text: [1]}, "must return an array (n,) of ids from 0 to 255 (vocab_"),
        (
            {"vocab_size": 100},
            "must return an array (n,) of ids from 0 to 99 (vocab_size - 1) from",
        ),
        ({"pieces": lambda _: []}, "must return bytes for each of the 256 tokens from pieces; got"),
        ({"pieces": lambda _: ["a"] * 256}, "must return bytes for each of the 256 tokens from pi"),
        ({"state": lambda _: {"a": {1}}}, f"{BASE}; got TypeError in default (Object of type set"),
        (
            {"restore": lambda state: Two()},
            "must encode the same after restore(state); got other ids.",
        ),
    ],
)
def test_a_wrong_value_of_a_tokenizer_is_named(attributes, message):
    assert tokenizer_message(**attributes).startswith(f"tokenizer: Mine {message}")


def corpus_message(**attributes):
    base = attributes.pop("base", Corpus)
    with pytest.raises(ConfigError) as error:
        check_corpus(type("Mine", (base,), attributes)())
    return str(error.value)


LABELLED = (
    "must give {'tokens': array (t,) of integers, 'labels': the same}, from dataset('train'); got "
)


def labelled(**example):
    return {"base": Probe, "dataset": lambda *_: [example]}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "must define texts."),
        ({"texts": lambda *_: [b"a"]}, "must give a str, from texts('train'); got b'a'."),
        (labelled(tokens=np.zeros(2, int)), LABELLED + "{'tokens': array([0, 0])}."),
        (labelled(tokens=np.zeros(2, int), labels=[0, 1]), LABELLED + "{'tokens': array([0, 0]), "),
        (labelled(tokens=np.zeros(2, int), labels=np.zeros(3, int)), LABELLED + "{'tokens': "),
    ],
)
def test_a_wrong_item_of_a_corpus_is_named(attributes, message):
    assert corpus_message(**attributes).startswith(f"data: Mine {message}")


def test_wrong_pairs_are_named():
    message = corpus_message(base=PairCorpus, pairs=lambda *_: [("a",)])
    rule = "must give (source, target), two str, from pairs('train'); got ('a',)."
    assert message.startswith(f"data: Mine {rule}")


def test_an_exception_in_the_users_file_is_a_sentence_with_its_line():
    of_file = [("data", Two), ("tokenizer", Bytes)]  # the one whose own lines raise is named
    with pytest.raises(ConfigError) as error, user_errors(of_file):
        Bytes().encode(None)
    message = str(error.value)
    assert message.startswith("tokenizer: Bytes must not raise an exception; got AttributeError: ")
    assert f" of '{__file__}'." in message
    with pytest.raises(ZeroDivisionError), user_errors([("data", Corpus)]):
        _ = 1 / 0
