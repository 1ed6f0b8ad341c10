"""The table of a multirun has the status of each job."""

import signal

import pytest

from tasks.logging import summary, sweep_table
from tasks.run import hydra_app
from xformer_kit.config import config_yaml
from xformer_kit.config.line.checked_line import CommandLine


@pytest.mark.parametrize(
    ("code", "status"),
    [(128 + signal.SIGTERM, "stopped"), (1, "failed"), (3, "failed"), (None, "failed")],
)
def test_a_job_that_a_signal_ended_is_stopped_and_not_failed(tmp_path, config, code, status):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "config.yaml").write_text(config_yaml(config()))
    if code is not None:
        ended = {"code": code, "text": "", "step": None}
        summary.write(ended, tmp_path / "0" / summary.ENDED)
    (row,), _ = sweep_table.job_rows(tmp_path)
    assert row["status"] == status


def test_failed_jobs_are_listed_and_stopped_ones_can_be_resumed(tmp_path):
    rows = [{"job": "1", "status": "finished"}, {"job": "0", "status": "failed"}]
    assert list(sweep_table.unfinished_messages(rows, tmp_path)) == [
        f"Job 0 failed; why: {tmp_path}/0/train.log"
    ]
    rows += [{"job": "2", "status": "failed"}, {"job": "3", "status": "stopped"}]
    assert list(sweep_table.unfinished_messages(rows, tmp_path)) == [
        f"Job 0 failed; why: {tmp_path}/0/train.log",
        f"Job 2 failed; why: {tmp_path}/2/train.log",
        f"Job 3 was stopped. Go on with: python train.py resume={tmp_path}/3",
    ]
    assert not list(sweep_table.unfinished_messages(rows[:1], tmp_path))


def test_the_mean_and_the_spread_over_seeds_of_each_setting():
    losses = {("a", "1"): 2.0, ("a", "2"): 2.5, ("b", "1"): 1.0, ("b", "2"): 1.5, ("c", "1"): 0.5}
    rows = [
        {"status": "finished", "norm.name": norm, "seed": seed, "val/loss": loss}
        for (norm, seed), loss in losses.items()
    ]
    rows += [{"status": "failed", "norm.name": "a", "seed": "3"}]
    assert list(sweep_table.over_seeds(rows, ["norm.name", "seed"])) == [
        "norm=b: val loss 1.2500 +- 0.3536 (standard deviation), 2 seeds",
        "norm=a: val loss 2.2500 +- 0.3536 (standard deviation), 2 seeds",
    ]
    assert list(sweep_table.over_seeds(rows[:2], ["seed"])) == [
        "val loss 2.2500 +- 0.3536 (standard deviation), 2 seeds"
    ]
    assert not list(sweep_table.over_seeds(rows, ["norm.name"]))


@pytest.mark.parametrize(
    ("of_table", "of_jobs", "code"), [(0, [0, 2], 2), (1, [0, 1], 1), (0, [0], 0)]
)
def test_a_sweep_fails_also_if_a_job_did_not_start_a_run(monkeypatch, of_table, of_jobs, code):
    """Its directory may hold an earlier run, which the table shows."""
    monkeypatch.setattr(hydra_app, "_run_hydra", lambda line, job: job.exit_codes.extend(of_jobs))
    monkeypatch.setattr(hydra_app, "_sweep_dirs", ["sweep"])
    monkeypatch.setattr(sweep_table, "write_sweep_table", lambda *_: of_table)
    assert hydra_app.run_line(CommandLine(argv=["-m"], multirun=True)) == code
