"""A real search that is killed during its first run, and started again."""

import json
import signal
import time
from pathlib import Path

import pytest

from tasks.process.exit_codes import PRUNED
from tests.forked_train import ForkedTrain
from tests.train_processes import environment

pytestmark = pytest.mark.extended

TINY = [  # a baseline that learns nothing at its rate, so that the next point is not ended early
    "study=search",
    "study.baseline={optim.lr:1.0,model.dim:16,attn.heads:2}",
    "study.seeds=2",
    "study.design.confirm=1",
    "study.factors={optim.lr:{low:1e-4,high:1.0,log:true},model.dim:{low:8,high:24,step:4},"
    "attn.heads:[3,4]}",
    "study.design.trials=4",
    "study.design.whole=1",
    "experiment=copy",
    "model.layers=1",
    "data.seq_len=128",
    "data.batch_size=4",
    "trainer.max_steps=30",
    "trainer.val_every=10",
    "trainer.checkpoint_every=5",
    "trainer.log_every_n_steps=1",
    "trainer.limit_val_batches=1",
    "logger=none",
    "schedule.warmup=0",
]


def start(home: Path) -> ForkedTrain:
    return ForkedTrain(TINY, home, environment(home))


@pytest.mark.slow
def test_a_search_that_was_killed_ends_with_a_report(tmp_path):
    """The killed trial is run again, the best is confirmed, and a command is printed."""
    process, until = start(tmp_path), time.monotonic() + 300
    while not any((tmp_path / "outputs").glob("runs/*/checkpoints/last.ckpt")):
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    process = start(tmp_path)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    folder = tmp_path / "outputs" / "studies" / "search"
    plan, report = (
        json.loads((folder / "plan.json").read_text()),
        (folder / "report.md").read_text(),
    )
    statuses = [point["status"] for point in plan["search"]["points"]]
    assert len(statuses) == 4 and set(statuses) <= {"finished", "pruned"}
    assert (
        len(plan["search"]["confirmed"]) == 1 and "finished" in statuses[1:]
    )  # the first is the baseline
    runs = [path for path in (tmp_path / "outputs" / "runs").iterdir() if path.is_dir()]
    assert {path.name for path in runs} == {run["key"] for run in plan["runs"]}
    assert (
        sum((path / "train.log").read_text().count(" INFO process ") for path in runs)
        == len(runs) + 1
    )
    assert (
        "| optuna |" in report
        and "## Search" in report
        and "Best at the other seeds: " in report
        and "xformer train " in report
        and "trials at seed" in out
    )
    ended = {
        path.name: json.loads((path / "ended.json").read_text())["code"]
        for path in runs
        if (path / "ended.json").exists()
    }
    assert ended == {
        point["key"]: PRUNED for point in plan["search"]["points"] if point["status"] == "pruned"
    }
