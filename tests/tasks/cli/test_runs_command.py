"""xformer runs: the runs below outputs/, here or in another directory."""

import json
from pathlib import Path

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
