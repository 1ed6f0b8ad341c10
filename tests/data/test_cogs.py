"""The published files of COGS are read; errors have the line."""

import gzip
import os
from pathlib import Path

import pytest

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.corpus.cogs import Cogs
from xformer_kit.registry import ConfigError, Context

SHARED = Path(
    os.environ.get("XFORMER_KIT_DATA", Path(__file__).parents[3] / "shared" / "data"), "cogs"
)
LINE = "A cat ran .\tcat ( x _ 1 ) AND run . agent ( x _ 2 , x _ 1 )\tin_distribution\n"


@pytest.fixture
def folder(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text(LINE * 2)
    (tmp_path / "gen.tsv.gz").write_bytes(
        gzip.compress(LINE.replace("in_distribution", "cp_recursion").encode())
    )
    return tmp_path


def faults(path):
    return messages(CORPORA.faults({"name": "cogs", "path": str(path)}, "data", Context()))


def test_the_published_files():
    if not SHARED.exists():
        pytest.skip("the files of COGS are not here")
    assert faults(SHARED) == []
    corpus = Cogs(path=str(SHARED))
    sizes = {split: sum(1 for _ in corpus.pairs(split)) for split in corpus.splits}
    assert sizes == {"train": 24_155, "valid": 3_000, "test": 3_000, "gen": 21_000}
    assert next(corpus.pairs("train")) == (
        "A rose was helped by a dog .",
        (
            "rose ( x _ 1 ) AND help . theme ( x _ 3 , x _ 1 ) AND help . agent ( x _ 3 , x _ 6 )"
            " AND dog ( x _ 6 )"
        ),
    )


def test_cogs_pairs_have_the_expected_values(folder):
    corpus = Cogs(path=str(folder))
    assert (
        list(corpus.pairs("train"))
        == [("A cat ran .", "cat ( x _ 1 ) AND run . agent ( x _ 2 , x _ 1 )")] * 2
    )
    assert len([*corpus.pairs("gen")]) == 1 and len([*corpus.pairs("valid")]) == 2
    assert faults(folder) == []


def test_a_last_line_without_an_end_and_windows_line_ends(folder):
    (folder / "dev.tsv").write_bytes(LINE.replace("\n", "\r\n").encode() + LINE.rstrip().encode())
    one, other = Cogs(path=str(folder)).pairs("valid")
    assert one == other and "\r" not in "".join(one)


def test_a_fingerprint_is_of_the_content(folder, tmp_path_factory):
    before = Cogs(path=str(folder))
    stamp, print_ = before.stamp(), before.fingerprint()
    moved = tmp_path_factory.mktemp("moved")
    for file in folder.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    assert Cogs(path=str(moved)).fingerprint() == print_
    (folder / "dev.tsv").write_text(LINE)
    assert (
        Cogs(path=str(folder)).fingerprint() != print_ and Cogs(path=str(folder)).stamp() != stamp
    )


def test_faults_have_the_expected_sentences(folder):
    (folder / "dev.tsv").write_text(LINE + "only two\tfields\n")
    assert (
        faults(folder) == []
    )  # the first line of each file is looked at; the rest is read by the run
    with pytest.raises(ConfigError) as error:
        list(Cogs(path=str(folder)).pairs("valid"))
    assert (
        str(error.value)
        == "data.path: each line must hold a sentence, its logical form and its kind, between"
        f" tabs; got 2 in '{folder}/dev.tsv', line 2."
    )
    (folder / "test.tsv").unlink()
    assert faults(folder) == [
        f"data.path: must be a directory with COGS' test.tsv or test.tsv.gz; got '{folder}'. Get it"
        " from https://github.com/najoungkim/COGS, directory data."
    ]
    (missing,) = faults(folder / "none")
    assert missing.startswith(
        "data.path: must be a directory with COGS' train.tsv or train.tsv.gz;"
    )


def test_bytes_that_are_no_text_are_found(folder):
    (folder / "train.tsv").write_bytes(b"na\xefve\tx\ty\n")
    assert faults(folder) == [
        f"data.path: must be utf-8 text; got '{folder}/train.tsv' with byte 0xEF at position 2. "
        "Convert the file, for instance with iconv, or leave it out."
    ]
