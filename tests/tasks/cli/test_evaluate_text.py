"""xformer evaluate RUN --input: the likelihood of a text that is not of the run's corpus."""

import gzip
import io
import json
import sys

import pytest
import torch

from tests.tasks.command_lines import fault, output
from xformer_kit import load


def evaluated(capsys, *words):
    """Returns the plain data of `xformer evaluate ... --json`."""
    code, out, err = output(capsys, "evaluate", *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_text_of_one_window_has_the_loss_of_its_logits(capsys, finished, tmp_path):
    text = tmp_path / "own.txt"
    text.write_text("the cat sat")  # 11 bytes, of which the first is not predicted
    found = evaluated(capsys, finished, "--input", text)
    ids = torch.tensor([list(b"the cat sat")])
    logits = load(finished)(ids[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:]).item()
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["perplexity"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(loss / torch.tensor(2.0).log().item(), rel=1e-5)
    assert (found["tokens"], found["bytes"]) == (10, 10)


@pytest.mark.parametrize("documents", [False, True])
def test_the_validation_text_has_the_validation_loss(capsys, begin, tmp_path, documents):
    train, valid = tmp_path / "train.jsonl", tmp_path / "valid.jsonl"
    for file, count in ((train, 60), (valid, 7)):
        lines = [json.dumps({"body": f"the cat sat on {i} mats"}) for i in range(count)]
        file.write_text("\n".join(lines))
    words = [f"data.path={train}", f"data.valid_path={valid}", "data.text=body"]
    words += [f"data.documents={documents}", "trainer.max_steps=2"]
    code, run = begin("own", "data=jsonl", *words)
    assert code == 0
    found = evaluated(capsys, run, "--input", valid)
    validation = evaluated(capsys, run)
    for name in ("loss", "perplexity", "bits_per_byte"):
        assert found[name] == pytest.approx(validation[f"val/{name}"], rel=1e-6)
    assert found["tokens"] == validation["tokens"]
    one = evaluated(capsys, run, "--input", valid, "--batch-size", "1")
    assert one["loss"] == pytest.approx(found["loss"], rel=1e-5)


def test_characters_without_a_token_are_counted(capsys, begin, tmp_path):
    vocab = {letter: i for i, letter in enumerate("acehkmnost")}
    file = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    file |= {"version": "1.0", "added_tokens": []}
    file["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    file["model"] = {"type": "BPE", "vocab": vocab, "merges": []}
    (tmp_path / "mine.json").write_text(json.dumps(file))
    words = ["tokenizer=pretrained", f"tokenizer.path={tmp_path / 'mine.json'}"]
    code, run = begin("own", *words, "trainer.max_steps=1")
    assert code == 0
    text = tmp_path / "own.txt"
    text.write_text("the cat! sat? on the mat.")
    assert evaluated(capsys, run, "--input", text)["characters_dropped"] == 3
    _, out, _ = output(capsys, "evaluate", run, "--input", text)
    assert "3 characters are dropped, for which the tokenizer has no token." in " ".join(
        out.split()
    )
    text.write_text("the cat sat")
    assert "characters_dropped" not in evaluated(capsys, run, "--input", text)


def _array(texts):
    return json.dumps([{"body": text} for text in texts], indent=2)


def _table(texts):
    return "".join(f"{row}\n" for row in ["id\tbody", *(f"1\t{text}" for text in texts)])


@pytest.mark.extended
@pytest.mark.parametrize(
    ("words", "name", "written"),
    [
        ("data=jsonl", "own.json", _array),
        ("data=jsonl", "own.data", _array),
        ("data=csv data.delimiter=tab", "own.csv", _table),
        ("data=csv data.delimiter=tab", "own.data", _table),
    ],
)
def test_a_file_is_read_as_the_data_of_the_run(capsys, begin, tmp_path, words, name, written):
    train, valid = tmp_path / f"train_{name}", tmp_path / name
    train.write_text(written(f"the cat sat on {i} mats" for i in range(60)))
    valid.write_text(written(f"the cat sat on {i} mats" for i in range(7)))
    paths = [f"data.path={train}", f"data.valid_path={valid}", "data.text=body"]
    code, run = begin("run", *words.split(), *paths, "trainer.max_steps=1")
    assert code == 0
    found, validation = evaluated(capsys, run, "--input", valid), evaluated(capsys, run)
    assert found["loss"] == pytest.approx(validation["val/loss"], rel=1e-6)
    assert (found["tokens"], found["field"]) == (validation["tokens"], "body")


def test_a_file_of_another_form_is_read_by_its_ending(capsys, finished, begin, tmp_path):
    """The first line of the output states the form that was read."""
    text, table, array = (tmp_path / name for name in ("own.txt", "own.csv", "own.json"))
    text.write_text("the cat sat\n\n")
    table.write_text("text\nthe cat sat\n")
    array.write_text('[{"text": "the cat sat"}]')
    losses = [evaluated(capsys, finished, "--input", path)["loss"] for path in (text, table, array)]
    assert losses == losses[:1] * 3
    for path, form in ((table, "csv"), (array, "jsonl")):
        _, out, _ = output(capsys, "evaluate", finished, "--input", path)
        first = "".join(out.partition("loss")[0].split())  # wrapped
        assert first.endswith(f"{path.name}readas{form},field'text'")
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(f"{row}\n" for row in ["text", *map(str, range(10_000, 10_400))]))
    _, run = begin("own", "data=csv", f"data.path={rows}", "data.text=text", "trainer.max_steps=1")
    assert "field" not in evaluated(capsys, run, "--input", text)


def test_files_are_read_as_one_text(capsys, finished, tmp_path):
    """Also compressed ones."""
    first, second = "the cat sat on the mat\n" * 5, "and the dog did not\n" * 6
    whole, packed, parts = tmp_path / "own.txt", tmp_path / "own.txt.gz", tmp_path / "parts"
    whole.write_text(first + second)
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    parts.mkdir()
    (parts / "1.txt").write_text(first.removesuffix("\n"))  # a line end is added
    (parts / "2.txt").write_text(second)
    losses = [evaluated(capsys, finished, "--input", path)["loss"] for path in (whole, packed)]
    assert losses == [evaluated(capsys, finished, "--input", parts / "*.txt")["loss"]] * 2


def test_a_text_is_read_from_stdin(capsys, finished, tmp_path, monkeypatch):
    text = tmp_path / "own.txt"
    text.write_text("the cat sat")
    with text.open() as file:
        monkeypatch.setattr("tasks.cli.given_text.STDIN", f"/dev/fd/{file.fileno()}")
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        code, out, _ = output(capsys, "evaluate", finished, "--input", "-")
    assert code == 0
    assert out.splitlines()[0].endswith("last, stdin")
    assert "bytes          10" in out


def test_faults_of_a_text_are_one_sentence(capsys, finished, tmp_path):
    names = {"empty": b"", "one": b"x", "bad": b"a\xff", "rows.jsonl": b'{"body": "x"}\n'}
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)

    def refused(*words):
        return fault(capsys, "evaluate", finished, *words).replace(f"{tmp_path}/", "")

    for name, expected in {
        "missing": "--input: no file or directory has this name; got 'missing'.",
        "empty": "--input: must lead to files that are not empty; got 'empty'.",
        "bad": "--input: must be utf-8 text; got 'bad' with byte 0xFF at position 1.",
        "one": "--input: must have at least 2 tokens, since the first is not predicted; got 1.",
        "rows.jsonl": "--field: no field is called 'text' in line 1 of 'rows.jsonl'. It has: body.",
    }.items():
        assert refused("--input", tmp_path / name).startswith(expected)
    reference = refused("--input", tmp_path / "one", "--reference", "x")
    assert reference.startswith("--reference: has no effect on --input one of a run of task=lang")
    field = refused("--input", tmp_path / "one", "--field", "body")
    assert field.startswith("--field: has no effect on --input one of a run of task=language_mod")
    rule = "--field: has no effect on the validation split, without --input FILE."
    assert refused("--field", "body") == f"{rule} Leave it out."
