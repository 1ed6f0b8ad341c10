"""Shares of splits by a hash; a split that is empty because equal sources go to the same split is
an error with its cause.
"""

import itertools
import json

import pytest

from xformer_kit.data import prepare
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import ConfigError, Context

TEXT, PAIRS = {"name": "jsonl", "text": "text"}, {"name": "jsonl"}


def config_message(folder, entries, data, tokenizer="byte"):
    path = folder / "some.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    node = {"path": str(path), "test": 0.0, "seq_len": 16, "cache": str(folder / "cache")} | data
    with pytest.raises(ConfigError) as error:
        prepare({"data": node, "tokenizer": {"name": tokenizer}})
    (message,) = error.value.messages
    return message


def expected_message(split, repeated, unit, remedy):
    return (
        f"data: the split {split} must hold an example; got none: {repeated}, and equal {unit} go"
        f" to the same split, by a hash. Give {unit} that differ, or {remedy}."
    )


@pytest.mark.parametrize("tokenizer", ["byte", "char", "word", "bpe"])
@pytest.mark.parametrize(("valid", "empty"), [(None, "valid"), (0.99, "train")])
def test_equal_documents_explain_an_empty_split(tmp_path, tokenizer, valid, empty):
    entries = [{"text": "the same document"}] * 200 + [{"text": " "}]
    sentence = expected_message(
        empty, "all 200 documents are equal", "documents", "a validation set in data.valid_path"
    )
    for _ in range(2):  # prepared, and from the cache
        assert config_message(tmp_path, entries, TEXT | {"valid": valid}, tokenizer) == sentence


def test_few_different_documents_explain_an_empty_split(tmp_path):
    entries = [{"text": f"document {i % 2}"} for i in range(100)]
    assert config_message(tmp_path, entries, TEXT | {"valid": 1e-6}) == expected_message(
        "valid",
        "of 100 documents only 2 differ",
        "documents",
        "a validation set in data.valid_path",
    )


def test_pairs_of_one_source_explain_an_empty_split(tmp_path):
    entries = [{"source": "the same", "target": f"other {i}"} for i in range(100)]
    valid_file = tmp_path / "valid.jsonl"
    valid_file.write_text(json.dumps({"source": "a", "target": "b"}) + "\n")
    assert config_message(tmp_path, entries, PAIRS) == expected_message(
        "valid", "all 100 sources are equal", "sources", "a validation set in data.valid_path"
    )
    assert config_message(
        tmp_path, entries, PAIRS | {"valid_path": str(valid_file), "test": 0.1}
    ) == expected_message(
        "test", "all 100 sources are equal", "sources", "a test set in data.test_path"
    )


def test_a_short_text_has_no_such_explanation(tmp_path):
    entries = [{"text": f"document {i}"} for i in range(3)]
    assert (
        config_message(tmp_path, entries, TEXT | {"valid": 1e-6})
        == "data: the validation text must have at least 2 tokens; got 0. Give a longer text, or a"
        " larger data.valid."
    )
    assert (
        config_message(tmp_path, [{"source": "a", "target": "b"}], PAIRS)
        == "data: the split valid must hold a pair; got none. Give more pairs, or a larger share of"
        " them (data.valid)."
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
