"""A tokenizer.json that no run saved, or that was edited, is one sentence with the file, the key
and a fix.
"""

import json

import pytest

from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer
from xformer_kit.registry import ConfigError

SAVED = "tokenizer: must be a file that a run saved; got '{file}'"
BACK = " Bring a copy of the file back."
CHAR = {"tokenizer": "char", "state": {"alphabet": "ab"}}
WORD = {"words": ["a"], "unknown": "token"}
FOREIGN = [
    (CHAR | {"foo": 1}, "(it has the keys tokenizer, state, foo)"),
    (
        {"tokenizer": "byte", "state": {"foo": 1}},
        "(Byte.__init__() got an unexpected keyword argument 'foo')",
    ),
    ({}, "(it has the keys none)"),
    ({"tokenizer": "char"}, "(it has the keys tokenizer)"),
    (CHAR | {"state": {"letters": "ab"}}, "without 'alphabet'"),
    (CHAR | {"state": ["ab"]}, "(it is none of tokenizer 'char')"),
    ({"tokenizer": "bpe", "state": {"vocab_size": 300}}, "(it is none of tokenizer 'bpe')"),
    (CHAR | {"state": {"alphabet": 3}}, "(object of type 'int' has no len())"),
    (
        {"tokenizer": "word", "state": WORD | {"words": [1]}},
        "('int' object has no attribute 'encode')",
    ),
    ({"model": 3}, "('int' object has no attribute 'get')"),
]


def load_error(file):
    with pytest.raises(ConfigError) as error:
        load_tokenizer(file)
    (message,) = error.value.messages
    return message


@pytest.mark.parametrize(("data", "said"), FOREIGN)
def test_a_foreign_or_edited_file(tmp_path, data, said):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data))
    assert load_error(file) == f"{SAVED.format(file=file)} {said}.{BACK}"


def test_an_edited_file_of_the_library(tmp_path):
    tokenizer = TOKENIZERS.create({"name": "bpe", "vocab_size": 260})
    tokenizer.fit(["a text of some words, a text"])
    tokenizer.save(file := tmp_path / "tokenizer.json")
    data = json.loads(file.read_text())
    file.write_text(json.dumps(data | {"foo": 1}))
    assert load_error(file).startswith(
        f"tokenizer: must be a tokenizer.json of the library tokenizers; got '{file}' ("
    )
    file.write_text(json.dumps(data | {"decoder": {"type": "none"}}))
    assert load_error(file).startswith(
        f"tokenizer: must be a tokenizer.json of the library tokenizers; got '{file}' (data did not"
        " match"
    )
    file.write_text(json.dumps(data))
    assert load_tokenizer(file).encode("a text").tolist() == tokenizer.encode("a text").tolist()


def test_a_component_of_ones_own_may_read_keys_that_it_does_not_write(tmp_path, monkeypatch):
    class Own(Tokenizer):
        vocab_size = 256

        def __init__(self, *, lower=False, old=None):
            self.lower = lower

        def pieces(self):
            return [bytes([i]) for i in range(256)]

        def state(self):
            return {"lower": self.lower}

    Own.__module__ = "mine"
    monkeypatch.setitem(TOKENIZERS._components, "own", Own)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"tokenizer": "own", "state": {"lower": True, "old": 1}}))
    assert load_tokenizer(file).lower is True
    file.write_text(json.dumps({"tokenizer": "own", "state": {"upper": True}}))
    assert load_error(file).startswith(SAVED.format(file=file) + " (")
    assert "unexpected keyword argument 'upper'" in load_error(file)
