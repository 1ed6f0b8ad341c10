"""Examples of validation and test that occur in training are counted; one file for two splits is an
error.
"""

import gzip
import json
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data import prepare
from xformer_kit.data.corpus import CORPORA, Corpus, PairCorpus
from xformer_kit.data.preparation.overlap import Overlap, training_last
from xformer_kit.registry import Context

A, B, C = [[(f"{name} {i}", f"its target {i}") for i in range(40)] for name in "abc"]


def prepared(folder, tokenizer="byte", **data):
    node = CORPORA.defaults(data["name"]) | {"seq_len": 32, "cache": str(folder / "cache")} | data
    return prepare({"data": node, "tokenizer": {"name": tokenizer}})


def tsv(path, pairs):
    path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    return str(path)


def jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.mark.parametrize("tokenizer", ["byte", "word"])
def test_equal_pairs_are_counted_in_each_split(tmp_path, tokenizer):
    train = tsv(tmp_path / "train.tsv", [*A, *B, ("", "")])
    valid = tsv(tmp_path / "valid.tsv", [*A[:3], A[0], *C, (A[5][0], "another target"), ("", "")])
    test = tsv(tmp_path / "test.tsv", [*B[:2], *C])
    for _ in range(2):  # prepared, and from the cache
        found = prepared(
            tmp_path, tokenizer, name="tsv", path=train, valid_path=valid, test_path=test
        )
        assert found.overlap == {"valid": [4, 45, "pairs"], "test": [2, 42, "pairs"]}
    assert (
        prepared(
            tmp_path, tokenizer, name="tsv", path=valid, valid_path=tsv(tmp_path / "c", B)
        ).overlap
        == {}
    )


@pytest.mark.parametrize("documents", [False, True])
def test_equal_documents_are_counted_with_and_without_data_documents(tmp_path, documents):
    texts = [f"document {i}\n\nof two paragraphs" for i in range(50)]
    train = jsonl(tmp_path / "train.jsonl", [*texts, " "])
    valid = jsonl(tmp_path / "valid.jsonl", [texts[3], "another", texts[3], texts[7], " "])
    node = {"name": "jsonl", "text": "text", "path": train, "documents": documents}
    for _ in range(2):
        assert prepared(tmp_path, **node, valid_path=valid).overlap == {
            "valid": [3, 4, "documents"]
        }
    assert prepared(tmp_path, **node, valid=0.2).overlap == {}  # equal ones go to one split


def test_a_copy_of_a_training_file_is_counted(tmp_path):
    train = tsv(tmp_path / "train.tsv", A)
    shutil.copy(train, tmp_path / "valid.tsv")
    node = {"name": "tsv", "path": train, "valid_path": str(tmp_path / "valid.tsv")}
    assert not messages(CORPORA.faults(node, "data", Context()))
    assert prepared(tmp_path, **node).overlap == {"valid": [40, 40, "pairs"]}
    (tmp_path / "valid.tsv.gz").write_bytes(gzip.compress((tmp_path / "valid.tsv").read_bytes()))
    node["valid_path"] += ".gz"
    assert prepared(tmp_path, **node).overlap == {"valid": [40, 40, "pairs"]}


def test_the_overlap_of_a_mixture_is_counted_per_part(tmp_path):
    one = {
        "name": "tsv",
        "path": tsv(tmp_path / "a", A),
        "valid_path": tsv(tmp_path / "b", [*A[:2], *C]),
    }
    other = {"name": "tsv", "path": tsv(tmp_path / "c", B), "valid_path": tsv(tmp_path / "d", C)}
    of = {
        name: CORPORA.defaults("tsv") | node for name, node in {"one": one, "other": other}.items()
    }
    assert prepared(tmp_path, name="mixture", of=of).overlap == {"one/valid": [2, 42, "pairs"]}


# Files of a text, which has no documents.


def texts(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text * 20)
    return {"name": "text", "path": str(folder)}


@pytest.mark.parametrize("how", ["copy", "symlink", "link"])
def test_a_validation_file_that_is_a_copy_of_a_training_file_is_counted(tmp_path, how):
    node = texts(
        tmp_path, a="A text of its own.\n", b="Another text here.\n", c="The last of three.\n"
    )
    assert prepared(tmp_path, **node, valid=0.3).overlap == {}  # of one size, and different
    make = {"copy": shutil.copy, "symlink": os.symlink, "link": os.link}[how]
    make(tmp_path / "a.txt", tmp_path / "z.txt")
    for _ in range(2):
        assert prepared(tmp_path, **node, valid=0.3).overlap == {"valid": [1, 2, "files"]}
    make(tmp_path / "z.txt", tmp_path / "b2.txt")  # two in training, and none in validation
    os.remove(tmp_path / "z.txt")
    assert prepared(tmp_path, **node, valid=0.2).overlap == {}


# One file that is named for two splits.

SPLITS = [("path", "valid_path"), ("path", "test_path"), ("valid_path", "test_path")]


@pytest.mark.parametrize("how", ["same", "symlink", "link", "home"])
@pytest.mark.parametrize(("first", "second"), SPLITS)
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_one_file_for_two_splits_is_refused(tmp_path, monkeypatch, kind, first, second, how):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "some").write_text('{"source": "a", "target": "b\t"}\n')
    (tmp_path / "other").write_text('{"source": "c", "target": "d\t"}\n')
    path = str(tmp_path / "some")
    name = {"same": path, "home": "~/some"}.get(how, str(tmp_path / "link"))
    if how in ("symlink", "link"):
        getattr(os, how)(path, name)
    options = {"path": str(tmp_path / "other")} | {first: path, second: name}
    assert messages(CORPORA.faults({"name": kind, **options}, "data", Context())) == [
        f"data.{second}: must be another file than data.{first}, so that each split has other"
        f" examples; got '{name}'. Name another, or take shares of the training data:"
        " data.valid=0.05."
    ]


def test_one_file_for_a_side_of_two_splits_is_refused(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(f"{name}\n")
    a, b, c = (str(tmp_path / name) for name in "abc")
    given = {"name": "pairs", "source": a, "target": b, "valid_source": a, "valid_target": c}
    (said,) = messages(CORPORA.faults(given, "data", Context()))
    assert said.startswith("data.valid_source: must be another file than data.source, ")
    assert not messages(
        CORPORA.faults({"name": "pairs", "source": a, "target": a, "valid": 0.1}, "data", Context())
    )


# The count itself.


class Some(PairCorpus):
    def __init__(self, splits):
        self.given, self.splits = splits, tuple(splits)

    def size(self):
        return 0

    def pairs(self, split):
        yield from self.given[split]


def counted(corpus):
    """Returns the counts after the splits are read."""
    overlap = Overlap(corpus)
    for split in training_last(corpus.splits):
        assert list(overlap.observe(split, corpus.items(split))) == list(corpus.items(split))
    return overlap.counts()


pairs = st.lists(
    st.tuples(
        st.sampled_from(["", " ", "a", "b", "ab"]), st.sampled_from(["", "a", "b", "ba", "c"])
    )
)


@given(train=pairs, valid=pairs, test=pairs)
@settings(deadline=None)
def test_counts_are_those_of_sets(train, valid, test):
    known = {pair for pair in train if all(side.strip() for side in pair)}
    there = {
        name: [p for p in some if all(s.strip() for s in p)]
        for name, some in (("valid", valid), ("test", test))
    }
    wanted = {
        name: [sum(p in known for p in some), len(some), "pairs"] for name, some in there.items()
    }
    found = counted(Some({"train": train, "valid": valid, "test": test}))
    assert found == {name: figures for name, figures in wanted.items() if figures[0]}


def test_a_text_without_documents_is_not_counted():
    class Plain(Corpus):
        def texts(self, split):
            yield "the same in both"

    assert counted(Plain()) == {}
