"""The table behind a multirun says of each job how it ended."""

import pytest

from tasks.logging import sweep_table
from xformer_kit.config import config_yaml

BEGUN = "2026-11-20 12:00:00,000 INFO process 7 in 0: train.py\n"
STOPPED = (
    "2026-11-20 12:00:01,000 INFO Stopped by SIGTERM at step 3. Go on with: python train.py"
    " resume=0\n"
)
BROKEN = "2026-11-20 12:00:01,000 INFO Traceback ...\n"


@pytest.mark.parametrize(
    ("log", "status"),
    [
        (BEGUN + STOPPED, "stopped"),
        (BEGUN + BROKEN, "failed"),
        (BEGUN + STOPPED + BEGUN + BROKEN, "failed"),
        (BEGUN + BROKEN + BEGUN + STOPPED, "stopped"),
        ("", "failed"),
        (None, "failed"),
    ],
)
def test_a_job_that_was_told_to_stop_has_not_failed(tmp_path, config, log, status):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "config.yaml").write_text(config_yaml(config()))
    if log is not None:
        (tmp_path / "0" / "train.log").write_text(log)
    (row,), _ = sweep_table.table(tmp_path)
    assert row["status"] == status


def test_failed_jobs_are_named_and_stopped_ones_can_go_on(tmp_path):
    rows = [{"job": "1", "status": "finished"}, {"job": "0", "status": "failed"}]
    assert list(sweep_table.endings(rows, tmp_path)) == [
        f"Job 0 failed; why: {tmp_path}/0/train.log"
    ]
    rows += [{"job": "2", "status": "failed"}, {"job": "3", "status": "stopped"}]
    assert list(sweep_table.endings(rows, tmp_path)) == [
        f"Jobs 0, 2 failed; why: {tmp_path}/0/train.log, {tmp_path}/2/train.log",
        f"Job 3 was stopped. Go on with: python train.py resume={tmp_path}/3",
    ]
    assert not list(sweep_table.endings(rows[:1], tmp_path))
