"""Splits are fixed and disjoint; errors of paths are one sentence."""

import ast
import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data import files
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.corpus import python as python_module
from xformer_kit.data.corpus.python import PyDoc, StdlibCode
from xformer_kit.data.corpus.text import Text
from xformer_kit.registry import ConfigError, Context

pytestmark = pytest.mark.extended

SHARED = Path(os.environ.get("XFORMER_KIT_DATA", Path(__file__).parents[3] / "shared" / "data"))


def full_text(corpus, split):
    return "".join(corpus.texts(split))


def faults(path, **options):
    return messages(
        CORPORA.faults({"name": "text", "path": str(path), **options}, "data", Context())
    )


@pytest.fixture(scope="module")
def pydoc():
    return PyDoc()


def test_pydoc_is_english_and_a_tenth_is_for_validation(pydoc):
    train, valid = full_text(pydoc, "train"), full_text(pydoc, "valid")
    assert len(train) > 1_000_000 and 0.05 < len(valid) / len(train + valid) < 0.15
    assert train.count(" the ") > 10_000 and "\0" not in train


def test_pydoc_never_shows_a_long_paragraph_of_validation_in_training(pydoc):
    train, valid = (
        {" ".join(text.split()) for text in full_text(pydoc, split).split("\n\n")}
        for split in ("train", "valid")
    )
    assert not {text for text in train & valid if len(text) >= python_module.MIN_REPEAT}


def test_pydoc_is_the_same_each_time(pydoc):
    again = PyDoc()
    assert again.fingerprint() == pydoc.fingerprint() and again.stamp() == pydoc.stamp()


def test_pydoc_of_a_library_that_lacks_files(monkeypatch, tmp_path):
    monkeypatch.setattr(python_module.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(
        python_module, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name))
    )
    sentence = (
        "data.name: corpus 'pydoc' needs the sources of the standard library; got none in"
        f" '{tmp_path}'. Use data=text data.path=FILE, or a Python that has them."
    )
    assert messages(CORPORA.faults("pydoc", "data", Context())) == [sentence]
    for i in range(40):
        (tmp_path / f"m{i}.py").write_text(f'"""Module {i}."""\ndef f():\n    "The same."\n')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text('"""A test."""')
    text = full_text(PyDoc(), "train") + full_text(PyDoc(), "valid")
    assert text.count("The same.") == 1 and text.count("Module ") == 40 and "A test" not in text


def test_stdlib_code_is_python_and_a_tenth_is_for_validation():
    code = StdlibCode()
    train, valid = full_text(code, "train"), full_text(code, "valid")
    assert len(train) > 5_000_000 and 0.03 < len(valid) / len(train + valid) < 0.2
    assert train.count("\ndef ") > 2000 and "class TestCase" in train + valid
    documents = [text.rstrip("\n") for split in ("train", "valid") for text in code.texts(split)]
    assert len(documents) == len(set(documents)), "a module stands twice"
    for text in documents[::40]:
        ast.parse(text)
    assert StdlibCode().fingerprint() == code.fingerprint() and code.size() == sum(
        map(len, documents)
    )


def test_stdlib_code_leaves_tests_out_and_reads_what_a_module_declares(monkeypatch, tmp_path):
    monkeypatch.setattr(python_module.sysconfig, "get_path", lambda name: str(tmp_path))
    for i in range(40):
        (tmp_path / f"m{i}.py").write_text(f"number = {i}\n")
    (tmp_path / "copied.py").write_text("number = 7\n")
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nname = 'naïve'\n".encode("latin-1"))
    (tmp_path / "no_text.py").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.py").touch()
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text("a_test = 1\n")
    text = full_text(StdlibCode(), "train") + full_text(StdlibCode(), "valid")
    assert "name = 'naïve'" in text and text.count("number = 7\n") == 1 and "a_test" not in text
    assert all(
        document.strip() for split in ("train", "valid") for document in StdlibCode().texts(split)
    )


def test_stdlib_code_without_a_library_is_a_fault(monkeypatch, tmp_path):
    monkeypatch.setattr(python_module.sysconfig, "get_path", lambda name: str(tmp_path))
    assert messages(CORPORA.faults("stdlib_code", "data", Context())) == [
        "data.name: corpus 'stdlib_code' needs the sources of the standard library; got none in"
        f" '{tmp_path}'. Use data=text data.path=FILE, or a Python that has them."
    ]


@given(
    text=st.text(
        st.characters(exclude_categories=("Cs",), exclude_characters="\0\ufeff"), min_size=1
    )
)
@settings(deadline=None, max_examples=30)
def test_text_is_split_at_a_character_and_nothing_is_lost(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_bytes(text.encode())
    corpus = Text(path=str(file), valid=0.25)
    assert full_text(corpus, "train") == text[: int(len(text) * 0.75)]
    assert full_text(corpus, "valid") == text[int(len(text) * 0.75) :]


def test_pieces_cut_anywhere_give_the_same_text(tmp_path, monkeypatch):
    text = "naïve 漢字 🙂\r\n" * 50
    (tmp_path / "a.txt").write_bytes(text.encode())
    expected = full_text(Text(path=str(tmp_path)), "train"), Text(path=str(tmp_path)).fingerprint()
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(files, "PIECE_BYTES", size)
        assert (
            full_text(Text(path=str(tmp_path)), "train"),
            Text(path=str(tmp_path)).fingerprint(),
        ) == expected


def test_a_directory_and_a_glob_read_files_in_the_order_of_names(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.txt").write_text("two")
    (tmp_path / "a.txt").write_text("\ufeffone")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"three\n"))
    (tmp_path / "d.txt").write_text("")
    (tmp_path / "e.md").write_text("no")
    for path in (tmp_path, f"{tmp_path}/**/*.txt*"):
        corpus = Text(path=str(path), valid=0.01)
        assert full_text(corpus, "train") + full_text(corpus, "valid") == "one\ntwo\nthree\n"
    assert Text(path=f"{tmp_path}/*.txt").files == [tmp_path / "a.txt"]


def test_a_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path):
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("the same text\n")
    one, two = (Text(path=str(tmp_path / name)) for name in ("one.txt", "two.txt"))
    assert one.fingerprint() == two.fingerprint() and one.stamp() != two.stamp()
    assert Text(path=str(tmp_path / "one.txt"), valid=0.2).fingerprint() != one.fingerprint()


def test_tinyshakespeare_is_split_as_nanogpt_does():
    file = SHARED / "tinyshakespeare" / "input.txt.gz"
    if not file.exists():
        pytest.skip("tinyshakespeare is not here")
    text = gzip.decompress(file.read_bytes()).decode()
    corpus = Text(path=str(file))
    assert full_text(corpus, "train") == text[: int(len(text) * 0.9)] and len(text) == 1_115_394
    assert full_text(corpus, "valid") == text[int(len(text) * 0.9) :]
    assert len(set(full_text(corpus, "train"))) == 65


def test_a_good_path_has_no_fault(tmp_path):
    (tmp_path / "a.txt").write_bytes(
        ("x" * (files.HEAD_BYTES - 1) + "é" * 10).encode()
    )  # the head ends within a character
    assert faults(tmp_path) == faults(tmp_path / "a.txt") == []


def test_faults_of_a_path_have_the_expected_sentences(tmp_path):
    def sentence(name, content=None, path=None):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        (fault,) = faults(path or tmp_path / name)
        return fault.replace(str(tmp_path), "DIR")

    give = "Give a file with text, in a directory .txt, .txt.gz or .txt.zst."
    assert (
        sentence("book.txt", b"some text", tmp_path / "bok.txt")
        == "data.path: no file or directory has this name; got 'DIR/bok.txt'. Did you mean"
        " 'book.txt'? Give a text file."
    )
    assert (
        sentence("", path=tmp_path / "*.text")
        == f"data.path: must lead to files that are not empty; got 'DIR/*.text'. {give}"
    )
    assert (
        sentence("empty", b"")
        == f"data.path: must lead to files that are not empty; got 'DIR/empty'. {give}"
    )
    (tmp_path / "none").mkdir()
    assert (
        sentence("none")
        == f"data.path: must lead to files that are not empty; got 'DIR/none'. {give}"
    )
    (tmp_path / "none" / "empty.txt").touch()
    assert (
        sentence("none")
        == f"data.path: must lead to files that are not empty; got 'DIR/none'. {give}"
    )
    convert = "Convert the file, for instance with iconv, or leave it out."
    assert (
        sentence("binary", b"abc\0def")
        == "data.path: must be utf-8 text; got 'DIR/binary' with byte 0x00 at position 3."
        f" {convert}"
    )
    assert (
        sentence("latin", "naïve".encode("latin-1"))
        == f"data.path: must be utf-8 text; got 'DIR/latin' with byte 0xEF at position 2. {convert}"
    )
    assert (
        sentence("cut", "naï".encode()[:-1])
        == f"data.path: must be utf-8 text; got 'DIR/cut' with byte 0xC3 at position 2. {convert}"
    )
    assert sentence("cut.gz", gzip.compress(os.urandom(999))[:50]).startswith("data.path: must be ")
    assert sentence("no.gz", b"plain text").startswith(
        "data.path: must be readable; got 'DIR/no.gz' (Not a gz"
    )
    assert sentence("a\0b", path="a\0b").startswith(
        "data.path: no file or directory has this name; got "
    )
    assert faults("")[0].startswith("data.path: no file or directory has this name; got ''.")
    os.mkfifo(tmp_path / "pipe")
    assert sentence("pipe").startswith("data.path: no file or directory has this name; got 'DIR/pi")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")

    def refuse(file, at):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(files, "_open", refuse)
    assert faults(tmp_path / "a.txt") == [
        f"data.path: must be readable; got '{tmp_path}/a.txt' (Permission denied). "
        "Mend it, or give another path."
    ]


def test_all_faults_come_together_and_a_path_is_needed(tmp_path):
    assert faults(tmp_path / "none.txt", valid=1.0) == [
        "data.valid: must be above 0 and below 1; got 1.0. Try 0.1.",
        (
            f"data.path: no file or directory has this name; got '{tmp_path}/none.txt'. Give a text"
            " file."
        ),
    ]
    assert messages(CORPORA.faults("text", "data", Context())) == [
        "data.path: corpus 'text' needs this option. Give it a file such as book.txt, a directory "
        "(its *.txt, *.txt.gz, *.txt.zst), or a glob such as 'corpus/**/*.txt'."
    ]


def test_a_fault_deep_in_a_large_file_is_found_while_reading(tmp_path):
    at = 3 * files.PIECE_BYTES - 1
    (tmp_path / "a.txt").write_bytes(b"x" * (at - 1) + "é".encode() + b"\xe2\x82x")
    assert faults(tmp_path) == []
    with pytest.raises(
        ConfigError,
        match=f"^data.path: must be utf-8 text; got .* byte 0xE2 at position {at + 1:,}. ",
    ):
        Text(path=str(tmp_path)).fingerprint()
