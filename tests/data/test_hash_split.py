"""Shares of splits by a hash; a split that is empty is an error."""

import itertools
import json

import pytest

from xformer_kit.data import prepare
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import ConfigError, Context

TEXT, PAIRS = {"name": "jsonl", "text": "text"}, {"name": "jsonl"}
NO_PAIR = (
    "data: the split {} must hold a pair; got none. Give more pairs, or a larger share of them"
    "; equal sources go to the same split."
)


def config_message(folder, entries, data, tokenizer="byte"):
    path = folder / "some.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    node = {"path": str(path), "test": 0.0, "seq_len": 16, "cache": str(folder / "cache")} | data
    with pytest.raises(ConfigError) as error:
        prepare({"data": node, "tokenizer": {"name": tokenizer}})
    (message,) = error.value.messages
    return message


@pytest.mark.parametrize("tokenizer", ["byte", "char", "word", "bpe"])
@pytest.mark.parametrize(
    ("valid", "sentence"),
    [
        (None, "data: the validation text must have at least 2 tokens; got 0. Give a longer text,"),
        (0.99, "data.seq_len: one window, seq_len + 1 = 17 tokens, must fit into the training"),
    ],
)
def test_equal_documents_are_in_one_split(tmp_path, tokenizer, valid, sentence):
    entries = [{"text": "the same document"}] * 200 + [{"text": " "}]
    for _ in range(2):  # prepared, and from the cache
        found = config_message(tmp_path, entries, TEXT | {"valid": valid}, tokenizer)
        assert found.startswith(sentence)


@pytest.mark.parametrize(("split", "data"), [("valid", {}), ("test", {"test": 0.1})])
def test_pairs_of_one_source_are_in_one_split(tmp_path, split, data):
    entries = [{"source": "the same", "target": f"other {i}"} for i in range(100)]
    valid_file = tmp_path / "valid.jsonl"
    valid_file.write_text(json.dumps({"source": "a", "target": "b"}) + "\n")
    given = {"valid_path": str(valid_file)} if data else {}
    assert config_message(tmp_path, entries, PAIRS | data | given) == NO_PAIR.format(split)


def test_a_short_text_is_refused(tmp_path):
    entries = [{"text": f"document {i}"} for i in range(3)]
    assert (
        config_message(tmp_path, entries, TEXT | {"valid": 1e-6})
        == "data: the validation text must have at least 2 tokens; got 0. Give a longer text, or a"
        " larger data.valid."
    )
    assert config_message(tmp_path, [{"source": "a", "target": "b"}], PAIRS) == NO_PAIR.format(
        "valid"
    )


def test_shares_are_accepted_if_and_only_if_each_split_has_a_part(tmp_path, monkeypatch):
    """The shares of the interval of hashes, [0, 1): first of the test set, then of validation."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{at / 16}\tx\n" for at in range(16)))
    node = {"name": "tsv", "path": str(tmp_path / "pairs.tsv")}
    monkeypatch.setattr("xformer_kit.data.corpus.hash_split.hash_fraction", float)
    for valid, test in itertools.product([-0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25], repeat=2):
        legal = 0 < valid < 1 and 0 <= test < 1 and valid + test < 1
        assert (
            not [*CORPORA.faults(node | {"valid": valid, "test": test}, "data", Context())]
        ) == legal, (valid, test)
        if legal:
            corpus = CORPORA.create(node | {"valid": valid, "test": test})
            names = ["test"] * int(16 * test) + ["valid"] * int(16 * valid) + ["train"] * 16
            for split in ("train", "valid", "test"):
                found = [float(source) * 16 for source, _ in corpus.pairs(split)]
                assert found == [at for at in range(16) if names[at] == split]
