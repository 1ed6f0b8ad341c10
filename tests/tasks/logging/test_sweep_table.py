"""The table of a multirun has the status of each job."""

import signal

import pytest

from tasks.logging import summary, sweep_table
from xformer_kit.config import config_yaml


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
        f"Jobs 0, 2 failed; why: {tmp_path}/0/train.log, {tmp_path}/2/train.log",
        f"Job 3 was stopped. Go on with: python train.py resume={tmp_path}/3",
    ]
    assert not list(sweep_table.unfinished_messages(rows[:1], tmp_path))
