"""`xformer parity`: the table of a family, its page, and what is refused."""

import importlib.util
import math

import pytest

from tasks.cli import main
from xformer_kit.parity import library, table
from xformer_kit.parity.measures import MEASURES

pytest.importorskip("transformers")


def test_a_family_is_measured_in_one_line_for_each_case(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table, "CASES", {name: table.CASES[name] for name in ("gpt2", "bert")})
    page = tmp_path / "page.md"
    assert main(["parity", "preset=gpt2", "--output", str(page)]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert len(heading) == len(line) and line.split()[:2] == ["gpt2", "gpt2"]
    assert heading.split()[:3] == ["model", "model_type", "logits"]
    text = page.read_text()
    assert text.splitlines()[-1].startswith("| gpt2 | `gpt2` | ")
    assert text.splitlines()[-1].count("|") == len(MEASURES) + 3


def test_a_value_above_its_bound_is_named(capsys, monkeypatch):
    first, *_, last = MEASURES
    chosen = (
        first._replace(value=lambda pair: math.nan),
        first._replace(value=lambda pair: 0.0),
        last._replace(heading="files", bound=0, value=lambda pair: 0.5),
        last._replace(value=lambda pair: None),
    )
    monkeypatch.setattr(table, "MEASURES", chosen)
    monkeypatch.setattr(table, "HEADINGS", ("model", "model_type", *(m.heading for m in chosen)))
    monkeypatch.setattr(table, "make_pair", lambda case, folder: None)
    monkeypatch.setattr(table, "CASES", {"gpt2": table.CASES["gpt2"]})
    assert main(["parity", "preset=gpt2"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[2:] == ["nan!", "0", "5e-01!", "-"]
    assert err.splitlines() == [
        "gpt2: logits is nan, above 1e-10.",
        "gpt2: files is 5.0e-01, above 0.",
    ]


def test_a_preset_of_a_published_size_is_one_of_its_family():
    assert table.chosen(["gemma3_1b"]).keys() == {"gemma3"}
    assert table.chosen(["roberta"]).keys() == {"roberta", "camembert", "xlm-roberta"}
    assert len(table.chosen()) == len(table.CASES)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["preset=lama"], "preset: is of no published family; got lama. Did you mean 'llama'?"),
        (["preset=whisper"], "preset: is of no published family; got whisper. Known: albert, "),
        (["norm=rms"], "parity: takes preset=NAME only; got norm=rms."),
        (["--output", "none/page.md"], "--output: is in a directory that does not exist; got none"),
    ],
)
def test_wrong_arguments_are_refused(words, answer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["parity", *words]) == 2
    assert answer in capsys.readouterr().err


def test_without_transformers_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    library.transformers.cache_clear()
    assert main(["parity"]) == 2
    assert capsys.readouterr() == (
        "",
        "parity: needs the package transformers, the reference of the comparison; got none. Use"
        " pip install 'transformers>=5.20,<6'.\n",
    )
