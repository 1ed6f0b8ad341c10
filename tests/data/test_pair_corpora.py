"""Pairs are read unchanged, in the split of their source; errors are one sentence."""

import csv
import gzip
import importlib.util
import json
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.config.faults.data_faults import form_of
from xformer_kit.data import files
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import ConfigError, Context

SHARED = Path(os.environ.get("XFORMER_KIT_DATA", Path(__file__).parents[3] / "shared" / "data"))
PAIRS = [(f"the house {i}", f"das Haus {i}") for i in range(400)]
LINE = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\n\r\t\ufeff"))


def write(folder, name, pairs=PAIRS):
    """Writes pairs as files of a corpus; returns its config node."""
    if name == "pairs":
        for side, suffix in enumerate(("en", "de")):
            (folder / f"train.{suffix}").write_text(
                "".join(f"{p[side]}\n" for p in pairs), encoding="utf-8"
            )
        return {
            "name": name,
            "source": str(folder / "train.en"),
            "target": str(folder / "train.de"),
        }
    file = folder / f"pairs.{name}"
    if name == "tsv":
        file.write_text(
            "".join(f"{s}\t{t}\tmore\n" for s, t in pairs), encoding="utf-8", newline=""
        )
    elif name == "jsonl":
        file.write_text(
            "".join(json.dumps({"source": s, "target": t, "id": 1}) + "\n" for s, t in pairs)
        )
    elif name == "csv":
        rows = [("id", "source", "target"), *((1, s, t) for s, t in pairs)]
        with open(file, "w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows(rows)
    elif name == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        sources, targets = zip(*pairs, strict=True)
        pyarrow.parquet.write_table(
            pa.table({"id": [1] * len(pairs), "source": sources, "target": targets}), file
        )
    elif name == "hub":
        datasets = pytest.importorskip("datasets")
        entries = [{"source": s, "target": t} for s, t in pairs]
        datasets.Dataset.from_list(entries).save_to_disk(str(folder / "saved"))
        return {"name": name, "dataset": str(folder / "saved")}
    return {"name": name, "path": str(file)}


KINDS = ["pairs", "tsv", "csv", "jsonl", "parquet", "hub"]


def faults(node):
    return messages(CORPORA.faults(node, "data", Context()))


def sentence(node, folder, split="train"):
    """Returns the errors of a corpus, before a run or while it is read."""
    if found := faults(node):
        return " ".join(found).replace(str(folder), "DIR")
    with pytest.raises(ConfigError) as error:
        list(CORPORA.create(node).pairs(split))
    return str(error.value).replace(str(folder), "DIR")


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_is_in_one_split_whatever_the_form(tmp_path, kind):
    corpus = CORPORA.create(write(tmp_path, kind) | {"valid": 0.2, "test": 0.1})
    assert corpus.form == "pairs" and corpus.splits == ("train", "valid", "test")
    splits = {split: list(corpus.pairs(split)) for split in corpus.splits}
    assert sorted(pair for split in splits.values() for pair in split) == sorted(PAIRS)
    assert 0.12 < len(splits["valid"]) / 400 < 0.28 and 0.05 < len(splits["test"]) / 400 < 0.15
    assert all(
        split == [p for p in PAIRS if p in set(split)] for split in splits.values()
    )  # in order
    text = "".join(corpus.texts("valid", "target"))
    assert text == "".join(f"{t}\n" for _, t in splits["valid"]) and corpus.size() > 0
    first, again = (
        corpus.fingerprint(),
        CORPORA.create(write(tmp_path, kind) | {"valid": 0.2, "test": 0.1}),
    )
    assert again.fingerprint() == first
    reference = CORPORA.create(write(tmp_path, "tsv") | {"valid": 0.2, "test": 0.1})
    assert reference.fingerprint() == first  # of content, not of places


def test_the_split_is_by_source_and_the_test_set_stays(tmp_path):
    twice = [(s, t + more) for s, t in PAIRS for more in ("", "!")]
    node = write(tmp_path, "tsv", twice)
    components = [CORPORA.create(node | {"valid": valid, "test": 0.1}) for valid in (0.05, 0.3)]
    for corpus in components:
        sources = [{s for s, _ in corpus.pairs(split)} for split in corpus.splits]
        assert not (sources[0] & sources[1] or sources[0] & sources[2] or sources[1] & sources[2])
    assert list(components[0].pairs("test")) == list(components[1].pairs("test"))
    some = CORPORA.create(write(tmp_path, "tsv", twice[:300]) | {"test": 0.1})
    assert set(some.pairs("test")) <= set(components[0].pairs("test"))  # whatever else there is
    assert CORPORA.create(node).splits == ("train", "valid")


@pytest.mark.parametrize("kind", ["pairs", "tsv", "csv", "jsonl", "parquet"])
def test_splits_can_be_separate_files(tmp_path, kind):
    nodes = {}
    for split, some in (("train", PAIRS[:10]), ("valid", PAIRS[10:14]), ("test", PAIRS[14:17])):
        (tmp_path / split).mkdir()
        nodes[split] = write(tmp_path / split, kind, some)
    keys = ("source", "target") if kind == "pairs" else ("path",)
    more = {f"{split}_{key}": nodes[split][key] for split in ("valid", "test") for key in keys}
    node = nodes["train"] | more
    assert faults(node) == []
    corpus = CORPORA.create(node)
    assert [list(corpus.pairs(split)) for split in corpus.splits] == [
        PAIRS[:10],
        PAIRS[10:14],
        PAIRS[14:17],
    ]
    before = corpus.stamp()
    write(tmp_path / "test", kind, PAIRS[14:20])
    assert CORPORA.create(node).stamp() != before


def test_splits_of_a_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    entries = [{"translation": {"en": s, "de": t}} for s, t in PAIRS]
    dataset = datasets.DatasetDict(
        {
            "train": datasets.Dataset.from_list(entries[:9]),
            "dev": datasets.Dataset.from_list(entries[9:12]),
        }
    )
    dataset.save_to_disk(str(tmp_path / "saved"))
    node = {
        "name": "hub",
        "dataset": str(tmp_path / "saved"),
        "source": "translation.en",
        "target": "translation.de",
    }
    corpus = CORPORA.create(node | {"valid_split": "dev"})
    assert [list(corpus.pairs(split)) for split in corpus.splits] == [PAIRS[:9], PAIRS[9:12]]
    assert corpus.stamp() == CORPORA.create(node | {"valid_split": "dev"}).stamp()
    assert (
        sentence(node | {"valid_split": "validation"}, tmp_path, "valid")
        == "data.valid_split: the data set 'DIR/saved' has no split 'validation'. It has: train,"
        " dev."
    )
    assert (
        sentence(node | {"source": "translation.fr"}, tmp_path)
        == "data.source: no field is called 'translation.fr' in example 1 of 'DIR/saved'. It has:"
        " en, de. Name one with data.source=FIELD."
    )
    assert (
        sentence(node | {"train_split": "dev", "valid_split": "dev"}, tmp_path)
        == "data.valid_split: must be other examples than the other splits; got dev, dev. Use"
        " data.valid=0.05."
    )
    (tmp_path / "jsonl").mkdir()  # a directory of data files
    (tmp_path / "jsonl" / "train.jsonl").write_text(
        json.dumps({"source": "a", "target": "b"}) + "\n"
    )
    assert sentence({"name": "hub", "dataset": str(tmp_path / "none")}, tmp_path).startswith(
        "data.dataset: cannot be loaded; got 'DIR/none' ("
    )


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "hub"])
def test_a_field_may_be_a_text(tmp_path, kind):
    node = write(tmp_path, kind) | {"text": "target", "valid": 0.2}
    corpus = CORPORA.create(node)
    assert corpus.form == form_of(node) == "text" and form_of(write(tmp_path, kind)) == "pairs"
    texts = {split: list(corpus.texts(split)) for split in ("train", "valid")}
    assert (
        sorted(texts["train"] + texts["valid"]) == sorted(f"{t}\n\n" for _, t in PAIRS)
        and texts["valid"]
    )
    assert faults(node | {"source": "x"}) == [
        "data.text: is the field of a text, and source, second and target are those of a pair."
        " Leave one of them out."
    ]
    assert corpus.fingerprint() != CORPORA.create(write(tmp_path, kind)).fingerprint()


@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1))
@settings(deadline=None, max_examples=40)
def test_any_text_round_trips(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("pairs")
    for kind in ("pairs", "tsv", "csv", "jsonl"):
        node = write(folder, kind, pairs)
        if faults(node):  # a file without a byte in it
            assert not any(map(any, pairs))
            continue
        corpus = CORPORA.create(node)
        found = sorted(pair for split in corpus.splits for pair in corpus.pairs(split))
        blank = [p for p in pairs if kind == "tsv" and not "".join(p).strip()]
        assert [p for p in found if any(p)] == sorted(p for p in pairs if any(p)) or blank


@given(text=st.text(st.sampled_from("ab\r\n\u2028\x0b\x85é"), max_size=40))
@settings(deadline=None, max_examples=60)
def test_only_line_ends_end_a_line(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("lines") / "a.txt"
    file.write_bytes(text.encode())
    expected = text.split("\n")
    expected = expected if expected[-1] else expected[:-1]
    for size in (1, 3, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "PIECE_BYTES", size)
            assert list(files.lines(file)) == [line.removesuffix("\r") for line in expected]


def test_compressed_files_are_read(tmp_path):
    compress = partial(pytest.importorskip("pyarrow").Codec("zstd").compress, asbytes=True)
    node = write(tmp_path, "tsv")
    data, expected = Path(node["path"]).read_bytes(), list(CORPORA.create(node).pairs("train"))
    half = len(data) // 2
    packed = {
        "a.tsv.gz": gzip.compress(data),
        "a.tsv.zst": compress(data),
        "b.tsv.zst": (compress(data[:half]) + compress(data[half:])),  # frames one after the other
    }
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
        corpus = CORPORA.create({"name": "tsv", "path": str(tmp_path / name)})
        assert (
            faults({"name": "tsv", "path": str(tmp_path / name)}) == []
            and list(corpus.pairs("train")) == expected
        )
    for content in (packed["a.tsv.zst"][:-9], b"no zstandard"):
        (tmp_path / "cut.tsv.zst").write_bytes(content)
        assert sentence(
            {"name": "tsv", "path": str(tmp_path / "cut.tsv.zst")}, tmp_path
        ).startswith("data.path: must be readable; got 'DIR/cut.tsv.zst' (")


def test_files_with_different_numbers_of_lines_are_an_error(tmp_path):
    node = write(tmp_path, "pairs")
    (tmp_path / "train.de").write_text("".join(f"{t}\n" for _, t in PAIRS[:150]))
    assert (
        sentence(node, tmp_path)
        == "data.target: must have a line for each of data.source; it has 150. Align the two files."
    )
    (tmp_path / "train.de").write_text("".join(f"{t}\n" for _, t in [*PAIRS, ("", "")]))
    assert (
        sentence(node, tmp_path)
        == "data.source: must have a line for each of data.target; it has 400. Align the two files."
    )


def test_faults_of_files_have_the_expected_sentences(tmp_path):
    tsv, pairs, lines = (write(tmp_path, kind) for kind in ("tsv", "pairs", "jsonl"))

    def bad(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    assert (
        sentence(tsv | {"path": bad("a.tsv", "a\tb\n\nc\n")}, tmp_path)
        == "data.path: must have 2 columns between tabs; got 1 in line 3 of 'DIR/a.tsv'. Mend the"
        " line, or set data.columns."
    )
    assert (
        sentence(tsv | {"path": bad("a.csv", "source,target\nc,d\n")}, tmp_path)
        == "data.path: must have 2 columns between tabs; got 1 in line 1 of 'DIR/a.csv'. Mend the"
        " line, or set data.columns."
    )
    assert (
        sentence(
            tsv | {"columns": ["en", "de"]} | {"path": bad("a.tsv", "id\ten\tger\n")}, tmp_path
        )
        == "data.columns: no column of 'DIR/a.tsv' is called 'de'. It has: id, en, ger. A number"
        " from 1 also names one."
    )
    for columns in ([1], [0, 1], [2, 2], [1, "de"], ["de", "de"]):
        assert sentence(tsv | {"columns": columns}, tmp_path) == (
            "data.columns: must be two or more different numbers from 1 on, or names; got"
            f" {columns}. Try [1,2]."
        )
    assert (
        sentence(pairs | {"valid_source": pairs["source"]}, tmp_path)
        == "data.valid_source: needs data.valid_target with it, line by line. Give both or none."
    )
    assert sentence(pairs | {"target": bad("latin.de", b"stra\xdfe\n")}, tmp_path).startswith(
        "data.target: must be utf-8 text; got 'DIR/latin.de' with byte 0xDF at position 4. "
    )
    assert (
        sentence(pairs | {"source": str(tmp_path / "train.e")}, tmp_path)
        == "data.source: no file or directory has this name; got 'DIR/train.e'. Did you mean"
        " 'train.en'? Give a text file."
    )
    assert (
        sentence(tsv | {"valid": 0.5, "test": 0.5}, tmp_path)
        == "data.valid: must leave something for training, with data.test; got 0.5 and 0.5."
    )
    assert (
        sentence(tsv | {"valid": 0.1, "valid_path": bad("other.tsv", "a\tb\n")}, tmp_path)
        == "data.valid: is a share of the training data, and data.valid_path gives a split. Leave"
        " one of them out."
    )
    assert (
        sentence(tsv | {"valid": 0.0}, tmp_path)
        == "data.valid: must be above 0 and below 1; got 0.0. Try 0.05."
    )
    assert (
        sentence(lines | {"target": "tarket"}, tmp_path)
        == "data.target: no field is called 'tarket' in line 1 of 'DIR/pairs.jsonl'. Did you mean"
        " 'target'? It has: source, target, id. Name one with data.target=FIELD."
    )
    assert (
        sentence(lines | {"source": "id"}, tmp_path)
        == "data.source: must be a text; got 1 as 'id' in line 1 of 'DIR/pairs.jsonl'. Name another"
        " field."
    )
    assert (
        sentence(lines | {"path": bad("a.jsonl", '{"source": "\\ud800", "target": "b"}')}, tmp_path)
        == "data.source: must be Unicode; got half a surrogate pair in 'source' in line 1"
        " of 'DIR/a.jsonl'. Leave it out."
    )


def test_a_directory_of_parquet_files_has_no_fault(tmp_path):
    node = write(tmp_path, "parquet")
    assert faults(node | {"path": str(tmp_path)}) == []
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("a")
    assert sentence(node | {"path": str(tmp_path / "empty")}, tmp_path).startswith(
        "data.path: must lead to files that are not empty; got 'DIR/empty'. Give"
    )


def test_faults_of_parquet_files_have_the_expected_sentences(tmp_path):
    node = write(tmp_path, "parquet")
    whole = Path(node["path"]).read_bytes()
    assert (
        sentence(node | {"source": "sourc"}, tmp_path)
        == "data.source: no field is called 'sourc' in row 1 of 'DIR/pairs.parquet'. Did you mean"
        " 'source'? It has: id, source, target. Name one with data.source=FIELD."
    )
    for content in (whole[: len(whole) // 2], whole[:300] + bytes(len(whole) - 308) + whole[-8:]):
        Path(node["path"]).write_bytes(content)
        found = sentence(node, tmp_path)
        assert found.startswith(
            "data.path: must be a whole parquet file; got 'DIR/pairs.parquet' ("
        )
        assert found.endswith("). Write it again.")
    damaged = bytearray(whole)
    damaged[40:400] = os.urandom(360)  # pages are damaged, the footer is whole
    Path(node["path"]).write_bytes(damaged)
    assert faults(node) == []
    assert "'DIR/pairs.parquet' (" in sentence(node, tmp_path)


def test_a_missing_package_is_a_fault(tmp_path, monkeypatch):
    node = write(tmp_path, "parquet")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert faults(node) == [
        "data.name: corpus 'parquet' needs the package pyarrow; got none. Use pip install"
        " 'xformer_kit[data]'."
    ]


@pytest.mark.extended
def test_tatoeba_is_split_by_its_english_side():
    file = SHARED / "tatoeba" / "deu-eng.2018-05-13.txt.zst"
    if not file.exists():
        pytest.skip("tatoeba is not here")
    pytest.importorskip("pyarrow")
    corpus = CORPORA.create({"name": "tsv", "path": str(file), "valid": 0.01, "test": 0.01})
    splits = [list(corpus.pairs(split)) for split in corpus.splits]
    assert sum(map(len, splits)) == 169_813
    assert all(1_000 < len(split) < 3_000 for split in splits[1:])
    assert (
        sum(len({s for s, _ in split}) for split in splits) == 135_534
    )  # sources: none is in two splits
