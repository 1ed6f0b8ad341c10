"""A split that is empty because equal sources go to the same split is an error with its cause."""

import json

import pytest

from xformer_kit.data import prepare
from xformer_kit.registry import ConfigError

TEXT, PAIRS = {"name": "jsonl", "text": "text"}, {"name": "jsonl"}


def refused(folder, entries, data, tokenizer="byte"):
    path = folder / "some.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    node = {"path": str(path), "test": 0.0, "seq_len": 16, "cache": str(folder / "cache")} | data
    with pytest.raises(ConfigError) as error:
        prepare({"data": node, "tokenizer": {"name": tokenizer}})
    (said,) = error.value.messages
    return said


def said(split, few, what, own):
    return (
        f"data: the split {split} must hold an example; got none: {few}, and equal {what} go to the"
        f" same split, by a hash. Give {what} that differ, or {own}."
    )


@pytest.mark.parametrize("tokenizer", ["byte", "char", "word", "bpe"])
@pytest.mark.parametrize(("valid", "empty"), [(None, "valid"), (0.99, "train")])
def test_equal_documents_explain_an_empty_split(tmp_path, tokenizer, valid, empty):
    entries = [{"text": "the same document"}] * 200 + [{"text": " "}]
    sentence = said(
        empty, "all 200 documents are equal", "documents", "a validation set in data.valid_path"
    )
    for _ in range(2):  # prepared, and from the cache
        assert refused(tmp_path, entries, TEXT | {"valid": valid}, tokenizer) == sentence


def test_few_different_documents_explain_an_empty_split(tmp_path):
    entries = [{"text": f"document {i % 2}"} for i in range(100)]
    assert refused(tmp_path, entries, TEXT | {"valid": 1e-6}) == said(
        "valid",
        "of 100 documents only 2 differ",
        "documents",
        "a validation set in data.valid_path",
    )


def test_pairs_of_one_source_explain_an_empty_split(tmp_path):
    entries = [{"source": "the same", "target": f"other {i}"} for i in range(100)]
    given = tmp_path / "valid.jsonl"
    given.write_text(json.dumps({"source": "a", "target": "b"}) + "\n")
    assert refused(tmp_path, entries, PAIRS) == said(
        "valid", "all 100 sources are equal", "sources", "a validation set in data.valid_path"
    )
    assert refused(tmp_path, entries, PAIRS | {"valid_path": str(given), "test": 0.1}) == said(
        "test", "all 100 sources are equal", "sources", "a test set in data.test_path"
    )


def test_a_short_text_has_no_such_explanation(tmp_path):
    entries = [{"text": f"document {i}"} for i in range(3)]
    assert (
        refused(tmp_path, entries, TEXT | {"valid": 1e-6})
        == "data: the validation text must have at least 2 tokens; got 0. Give a longer text, or a"
        " larger data.valid."
    )
    assert (
        refused(tmp_path, [{"source": "a", "target": "b"}], PAIRS)
        == "data: the split valid must hold a pair; got none. Give more pairs, or a larger share of"
        " them."
    )
