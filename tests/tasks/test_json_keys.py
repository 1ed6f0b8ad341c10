"""What commands print with --json has the keys and types of docs/guide/programs.md."""

import json
import shutil
from pathlib import Path

import pytest

from tasks.study import tries
from tests.json_keys import differences, documented_keys
from tests.tasks.command_lines import TINY, output
from tests.tasks.conftest import STUDY


@pytest.fixture(scope="module")
def rows():
    """{command: {key: type}}"""
    return documented_keys()


def test_a_difference_from_the_table_is_found():
    keys = {"a": "integer", "b[].c": "number or null", "b[].d": "text, optional", "e.*": "any"}
    rows = {"x": keys, "y": {"[]": "like `x`", "[].f": "text"}}
    right = {"a": 1, "b": [{"c": 2, "d": ""}, {"c": None}], "e": {"g": [], "h": 1}}
    assert [*differences(rows, right, "x")] == [*differences(rows, [right], "y")] == []
    wrong = right | {"a": True, "b": [{"c": "2", "i": 1}, {}]}
    assert [*differences(rows, wrong, "x")] == [
        "a is boolean",
        "b[].c is text",
        "b[].i is not documented",
        "b[].c is missing",
    ]


def printed(capsys, *words, code=0):
    found, out, err = output(capsys, *words, "--json")
    assert (found, err) == (code, "")
    return json.loads(out)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "line",
    [
        ["components", "attn"],
        ["describe", *TINY, "--parameters"],
        ["diff", " ".join([*TINY, "norm=layer", "mask=sliding_window"]), " ".join(TINY)],
        ["explain", *TINY, "model.vocab_size=100", "mask=sliding_window"],
        ["judge", "results.csv"],
    ],
    ids=lambda line: line[0],
)
def test_commands_without_a_run(rows, tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    text = "variant,seed,val_loss\na,0,1.0\na,1,1.1\nb,0,0.8\nb,1,0.95\nb,2,nan\n"
    Path("results.csv").write_text(text)
    data = printed(capsys, *line)
    assert data and [*differences(rows, data, line[0])] == []


@pytest.mark.extended
def test_commands_on_runs(rows, study_home, tmp_path, monkeypatch, capsys):
    """The runs of a try are those of the study."""
    monkeypatch.chdir(shutil.copytree(study_home, tmp_path / "home"))
    study, runs = "outputs/studies/norm_placement", sorted(Path("outputs/runs").iterdir())
    monkeypatch.setattr(
        tries,
        "_train",
        lambda tried, file, pairs: shutil.copytree(study, tried.folder, dirs_exist_ok=True),
    )
    base = " ".join(word for word in STUDY if "study" not in word)
    line = ["try", "placement=post", "--base", f"{base} data.path=text.txt schedule.warmup=0"]
    for words, code in (
        (["evaluate", runs[0]], 0),
        (["evaluate", runs[0], "--input", "text.txt"], 0),
        (["compare", *runs], 0),
        (["status", "norm_placement"], 0),
        ([*line, "--pairs", "2"], 11),
        (["tries"], 0),
    ):
        data = printed(capsys, *words, code=code)
        assert data and [*differences(rows, data, words[0])] == [], words
