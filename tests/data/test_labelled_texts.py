"""Texts with labels, in tables and records."""

import json

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import Context

COLUMNS = "must be two or more different numbers from 1 on, or names"


def faults(node):
    return messages(CORPORA.faults(node, "data", Context()))


def test_two_sources_are_joined_and_labels_may_be_numbers(tmp_path):
    """Pairs of sentences with a label, as GLUE has them."""
    table, lines = tmp_path / "a.tsv", tmp_path / "a.jsonl"
    rows = [("a b", "c", 1), ("d", "e", 0.5), ("f", " ", 1)]
    table.write_text("one\ttwo\tlabel\n" + "".join(f"{a}\t{b}\t{y}\n" for a, b, y in rows))
    objects = [json.dumps({"one": a, "two": b, "label": y}) for a, b, y in rows]
    lines.write_text("\n".join(objects) + "\n")
    expected = [("a b ||| c", "1"), ("d ||| e", "0.5"), ("", "1")]  # the last is left out
    named = {"name": "tsv", "path": str(table), "columns": ("one", "two", "label")}
    fields = {"source": "one", "second": "two", "target": "label"}
    for node in (named, {"name": "jsonl", "path": str(lines), **fields}):
        assert [*CORPORA.create(node).rows("train")] == expected
    more = {"name": "jsonl", "path": str(lines)}
    assert "data.target: source, second and target must be different fields; got" in " ".join(
        faults(more | {"second": "source"})
    )
    assert (
        "data.text: is the field of a text, and source, second and target are those of a pair."
        in " ".join(faults(more | {"second": "b", "text": "a"}))
    )
    assert f"data.columns: {COLUMNS}; got [1]. Try [1,2]." in " ".join(
        faults({"name": "tsv", "path": str(table), "columns": [1]})
    )
