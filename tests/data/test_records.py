"""Tables and JSON: what is written is read, and each fault of a file is one sentence."""

import csv
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import ConfigError, Context

GOOD = '{"source": "a", "target": "b"}\n'
JSON_RULE = "data.path: must hold one JSON object in each line, or one array of them"
CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0\r\ufeff")
RECORDS = st.lists(st.tuples(st.text(CHARACTERS), st.text(CHARACTERS)), min_size=1)


def read(folder, name, content, **options):
    """Returns the pairs of a file of the corpus that its name starts with, in any order."""
    data = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(data)
    kind = name.partition("_")[0]
    node = {"name": kind, "path": str(folder / name)} | options
    if kind == "tsv":
        node["columns"] = ["source", "target"]
    if found := messages(CORPORA.faults(node, "data", Context(path="data"))):
        return " ".join(found).replace(str(folder), "DIR")
    corpus = CORPORA.create(node)
    try:
        return sorted(pair for split in corpus.splits for pair in corpus.items(split))
    except ConfigError as error:
        return str(error).replace(str(folder), "DIR")


@given(RECORDS, st.sampled_from(",;\t|a"), st.sampled_from(["\n", "\r\n"]))
@settings(deadline=None, max_examples=40)
def test_any_record_is_read_as_it_was_written(tmp_path_factory, pairs, delimiter, end):
    """Also with delimiters, quotes and line ends in the texts."""
    folder, pairs = tmp_path_factory.mktemp("records"), [("one", "two"), *pairs]
    with open(folder / "written", "w", newline="", encoding="utf-8") as file:
        rows = [("source", "target"), *pairs]
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(rows)
    name = {"\t": "tab"}.get(delimiter, delimiter)
    table = (folder / "written").read_bytes()
    assert read(folder, "csv_a", b"\xef\xbb\xbf" + table, delimiter=name) == sorted(pairs)
    objects = [{"source": source, "target": target} for source, target in pairs]
    lines = "".join(json.dumps(one) + end for one in objects)
    arrays = [json.dumps(objects, indent=indent) for indent in (None, 2)]
    for text in (lines, *arrays, f" {end}{arrays[0]}"):
        assert read(folder, "jsonl_a", text) == sorted(pairs)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "jsonl_a",
            GOOD + '{"source": "c", "tar',
            f"{JSON_RULE}; line 2 of 'DIR/jsonl_a' cannot be read (Unterminated string starting at:"
            " line 1 column 17 (char 16)). Write it again.",
        ),
        (
            "jsonl_a",
            json.dumps([{"source": "a", "target": "b"}])[:-1],
            f"{JSON_RULE}; 'DIR/jsonl_a' cannot be read (Expecting ',' delimiter: line 1 column 32"
            " (char 31)). Write it again.",
        ),
        (
            "jsonl_a.json",
            json.dumps({"source": "a"}, indent=1),
            f"{JSON_RULE}; line 1 of 'DIR/jsonl_a.json' cannot be read (Expecting property name"
            " enclosed in double quotes: line 1 column 2 (char 1)). Write it again.",
        ),
        (
            "jsonl_a",
            GOOD + "\n[1]\n",
            f"{JSON_RULE}; got [1] in line 3 of 'DIR/jsonl_a'. Use {{...}}.",
        ),
        (
            "jsonl_a",
            '[null, {"source": "a"}]',
            f"{JSON_RULE}; got null in object 1 of 'DIR/jsonl_a'. Use {{...}}.",
        ),
        (
            "jsonl_a",
            '{"source": "a", "target": ' + 5000 * "1" + "}",
            f"{JSON_RULE}; line 1 of 'DIR/jsonl_a' cannot be read (Exceeds the limit (4300 digits)"
            " for integer string conversion: value has 5000 digits; use"
            " sys.set_int_max_str_digits() to increase the limit). Write it again.",
        ),
        (
            "jsonl_a",
            '{"source": "a", "target": NaN}',
            "data.target: must be a text or a finite number; got nan as 'target' in line 1 of"
            " 'DIR/jsonl_a'. Name another field.",
        ),
        (
            "tsv_a",
            "\ufeff",
            "data.columns: no column of 'DIR/tsv_a' is called 'source'. It has: none. A number from"
            " 1 also names one.",
        ),
        (
            "csv_a",
            "source;target\na;b\n",
            "data.delimiter: must be that of the file; got ',', and ['source;target'] as the first"
            " line of 'DIR/csv_a'. Try ';' or tab.",
        ),
        (
            "csv_a",
            "source,target\na,b\nc\n",
            "data.path: must have 2 columns; got 1 in line 3 of 'DIR/csv_a'. Mend the line.",
        ),
        (
            "csv_a",
            'source,target\n"a,b\nc,d\n',
            "data.path: must be a table; got line 3 of 'DIR/csv_a' (unexpected end of data)."
            ' A field with a quote or a line end is in quotes, and has "" for each quote.',
        ),
        ("csv_a", "\n\nsource,target\n\na,b\n", [("", ""), ("a", "b")]),
        ("csv_a", "\ufeff", []),
    ],
)
def test_each_fault_of_a_file_is_one_sentence(tmp_path, name, content, sentence):
    assert read(tmp_path, name, content) == sentence


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_a_file_in_another_encoding_is_one_sentence(tmp_path, kind):
    text = {"tsv": "source\ttarget\né\tb\n", "csv": "source,target\né,b\n"}.get(kind, GOOD)
    assert read(tmp_path, f"{kind}_a", "\ufeff" + text) == read(tmp_path, f"{kind}_a", text)
    rule = f"data.path: must be utf-8 text; got 'DIR/{kind}_a' with "
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        assert read(tmp_path, f"{kind}_a", text.encode(encoding)).startswith(rule)
    assert read(tmp_path, f"{kind}_a", gzip.compress(text.encode())).startswith(rule)
    rule = f"data.path: must be readable; got 'DIR/{kind}_a.gz' "
    for content in (text, gzip.compress(text.encode())[:-9]):
        assert read(tmp_path, f"{kind}_a.gz", content).startswith(rule)


def test_of_a_parquet_file_a_column_and_its_numbers_are_checked(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    def sentence(names, target):
        columns = [pa.array(["a"])] * (len(names) - 1)
        table = pa.Table.from_arrays([*columns, pa.array([target])], names=names)
        pyarrow.parquet.write_table(table, tmp_path / "parquet_b")
        return read(tmp_path, "parquet_a", (tmp_path / "parquet_b").read_bytes())

    assert sentence(["x", "x", "source", "target"], 2) == [("a", "2")]
    assert sentence(["source", "target"], float("nan")) == (
        "data.target: must be a text or a finite number; got nan as 'target' in row 1 of"
        " 'DIR/parquet_a'. Name another field."
    )
