"""xformer runs: the runs below outputs/, here or in another directory."""

import json
from pathlib import Path

from tasks.cli.runs import SHOWN
from tests.tasks.command_lines import fault, output


def test_the_runs_of_another_directory_are_listed(tmp_path, monkeypatch, capsys):
    (tmp_path / "outputs" / "decoder" / "1").mkdir(parents=True)
    (tmp_path / "outputs" / "decoder" / "1" / "config.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for line in ([], ["."], ["outputs"], [f"{tmp_path}"]):
        code, out, _ = output(capsys, "runs", "--json", *line)
        assert (code, [Path(run["run"]).name for run in json.loads(out)]) == (0, ["1"])
    monkeypatch.chdir(tmp_path / "outputs")
    assert output(capsys, "runs", "--json", "..")[1].count("outputs/decoder/1") == 1
    message = "nowhere: is no directory. Name one that has outputs/."
    assert fault(capsys, "runs", "nowhere") == message


def test_the_number_of_older_runs_is_below_the_table(tmp_path, monkeypatch, capsys):
    def add(number):
        folder = tmp_path / "outputs" / "decoder" / str(number)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("{}")

    for number in range(SHOWN):
        add(number)
    monkeypatch.chdir(tmp_path)
    assert "older" not in output(capsys, "runs")[1]
    add(SHOWN)
    assert "1 older runs: xformer runs --all" in output(capsys, "runs")[1]
    assert "older" not in output(capsys, "runs", "--all")[1]
