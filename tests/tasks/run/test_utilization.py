"""The model FLOPs utilization of a run."""

import json

import pytest

from tests.tasks.csv_rows import rows


def test_a_run_on_a_device_of_known_peak_reports_its_utilization(begin, monkeypatch, capsys):
    monkeypatch.setattr("tasks.run.training_process.peak_flops", lambda device: 1e11)
    _, folder = begin("utilized", "trainer.max_steps=3", "trainer.log_every_n_steps=1")
    summary = json.loads((folder / "summary.json").read_text())
    speeds = rows(folder / "speed.csv")
    for row in (summary, *speeds):
        assert float(row["mfu"]) == pytest.approx(
            summary["flops_per_token"] * float(row["tokens_per_second"]) / 1e11
        )
    assert len({row["time"] for row in speeds}) == 3  # seconds since 1970, with milliseconds
    assert len(speeds) == 3 and "mfu" not in rows(folder / "metrics.csv")[0]
    assert f"MFU {summary['mfu']:.1%}" in capsys.readouterr().out


def test_a_run_on_a_cpu_has_no_utilization(begin, capsys):
    _, folder = begin("cpu", "trainer.max_steps=3")
    assert json.loads((folder / "summary.json").read_text())["mfu"] is None
    assert "mfu" not in rows(folder / "speed.csv")[0]
    page = capsys.readouterr().out
    assert "MFU" not in page and "MiB of the process" in page
