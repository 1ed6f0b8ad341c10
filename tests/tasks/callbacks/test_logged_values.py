"""Values that callbacks log: in metrics.csv, speed.csv, summary.json and the loggers."""

import json
import signal

import pytest
from lightning.pytorch import loggers

from tasks.callbacks.stopping import SignalStop
from tasks.logging.loggers import CREATE
from tasks.logging.run_logger import OfRun
from tasks.logging.summary import final_metrics
from tasks.run.resume import resume_run
from tests.tasks.csv_rows import rows
from xformer_kit.config.options.callbacks import CALLBACKS

FILE = """
from pathlib import Path

from lightning.pytorch import Callback, callbacks
from xformer_kit.config.options.callbacks import CALLBACKS


@CALLBACKS.register("rate")
class Rate(callbacks.LearningRateMonitor):
    def __init__(self, *, log_momentum: bool = False):
        super().__init__("step", log_momentum)


@CALLBACKS.register("device")
class Device(callbacks.DeviceStatsMonitor):
    def __init__(self, *, cpu_stats: bool = True):
        super().__init__(cpu_stats)


@CALLBACKS.register("values")
class Values(Callback):
    # Logs the number of the step in several hooks.

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        if task.step % 4 == 0:
            task.log("mine/batch", float(task.step))
            trainer.logger.log_metrics({"mine/direct": float(task.step)}, trainer.global_step)
            trainer.logger.log_metrics({"mine/now": float(task.step)})

    def on_validation_epoch_end(self, trainer, task):
        task.log("val/mine", float(task.step))

    def on_train_end(self, trainer, task):
        trainer.logger.log_metrics({"mine/other": 1.0}, 1000)


@CALLBACKS.register("many")
class Many(Callback):
    # Logs values in every hook, some of them only from a later step on; ends the process once.
    fails = False

    def __init__(self, *, fails_at: int = 0):
        self.fails_at = fails_at

    def put(self, trainer, task, hook, **more):
        values = {hook: task.step + 0.1, "text": "a", "list": [1, 2], "step": -1, **more}
        trainer.logger.log_metrics(values)

    def on_train_start(self, trainer, task):
        self.put(trainer, task, "start")

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.put(trainer, task, "before")
        if task.step == self.fails_at and Many.fails:
            Many.fails = False
            raise RuntimeError("as if it was killed")

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.put(trainer, task, "after", **({"late": 1.0} if task.step % 7 == 0 else {}))
        self.log("each", task.step * 2.0)
        if task.step % 3 == 0:
            task.log("third", task.step * 3.0, on_step=True, on_epoch=True)

    def on_validation_batch_end(self, trainer, task, outputs, batch, batch_idx):
        task.log("val/mean", batch_idx + task.step)

    def on_validation_end(self, trainer, task):
        self.put(trainer, task, "validated")

    def on_train_end(self, trainer, task):
        self.put(trainer, task, "end")


@CALLBACKS.register("first")
@CALLBACKS.register("second")
class Twice(Callback):
    def __init__(self, run_dir: Path, *, file: str):
        self.path, self.count = run_dir / file, 0

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.count += 1
        self.path.write_text(f"{self.count}")

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
"""


def test_values_of_callbacks_are_logged_at_the_step_that_has_them(run, with_logger):
    options = ["logger=wandb", "trainer.val_every=10", "trainer.log_every_n_steps=4"]
    code, _ = run("callbacks.values={}", *options)
    assert code == 0
    (logged,) = with_logger()
    points = {
        name: [(int(row["step"]), float(row[name])) for row in logged if row[name]]
        for name in ("mine/batch", "mine/direct", "mine/now", "val/mine", "mine/other")
    }
    batches = [(step, step) for step in (4, 8, 12, 16, 20)]
    assert points["mine/batch"] == points["mine/direct"] == points["mine/now"] == batches
    assert points["val/mine"] == [(10, 10), (20, 20)]
    assert points["mine/other"] == [(1000, 1)]
    losses = [int(row["step"]) for row in logged if row["val/loss"]]
    assert losses == [10, 20]


def test_values_of_callbacks_are_logged_once_through_a_signal(run, with_logger, monkeypatch):
    options = ["callbacks.values={}", "callbacks.rate={}", "logger=wandb"]
    options += ["trainer.val_every=10", "trainer.log_every_n_steps=4"]
    monkeypatch.setattr(
        SignalStop, "_signal_number", lambda self, trainer, task: signal.SIGTERM * (task.step == 8)
    )
    code, folder = run(*options)
    assert code == 143 and resume_run(folder, (run.file,)) == 0
    logged = [row for rows_of_process in with_logger() for row in rows_of_process]
    assert "epoch" not in logged[0]

    def steps(name):
        return [int(row["step"]) for row in logged if row.get(name)]

    batches = [4, 8, 12, 16, 20]
    assert steps("mine/batch") == steps("mine/direct") == steps("train/loss") == batches
    assert steps("val/mine") == steps("val/loss") == [10, 20]
    assert steps("lr-AdamW/pg1") == [3, 7, 11, 15, 19]


def test_lightnings_own_callbacks_log_to_speed_csv(run):
    code, folder = run("callbacks.rate={}", "callbacks.device={}", "trainer.log_every_n_steps=5")
    speed = rows(folder / "speed.csv")
    used = "Device.on_train_batch_end/cpu_percent"
    assert code == 0 and [row["step"] for row in speed] == ["5", "10", "15", "20", "20"]
    assert all(row["lr-AdamW/pg1"] and row[used] for row in speed[:4])
    assert [*rows(folder / "metrics.csv")[0]] == [
        *("step", "train/loss", "val/loss", "val/perplexity", "val/bits_per_byte"),
        *("lr", "grad_norm"),
    ]


MANY = ["callbacks.many={}", "trainer.val_every=10", "trainer.log_every_n_steps=2"]
MANY += ["trainer.checkpoint_every=5", "logger=csv"]


def test_metrics_csv_has_what_callbacks_log_at_each_step(run):
    code, folder = run(*MANY)
    found = rows(folder / "metrics.csv")
    steps = {
        name: [(int(row["step"]), float(row[name])) for row in found if row[name]]
        for name in found[0]
    }
    assert code == 0 and [row["step"] for row in found] == [f"{step}" for step in range(1, 21)]
    assert steps["before"] == [(step, pytest.approx(step - 0.9)) for step in range(1, 21)]
    assert steps["after"] == [(step, pytest.approx(step + 0.1)) for step in range(1, 21)]
    assert steps["late"] == [(7, 1), (14, 1)]
    assert steps["each"] == [(step, step * 2) for step in range(2, 21, 2)]
    assert steps["third_step"] == [(step, step * 3) for step in (6, 12, 18)]
    assert steps["validated"] == [(step, pytest.approx(step + 0.1)) for step in (10, 20)]
    assert [step for step, _ in steps["val/mean"]] == [10, 20]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["val/mean"] == steps["val/mean"][-1][1] and "val/mean" in final_metrics(summary)
    assert not steps.keys() & {"start", "end", "text", "list", "epoch", "third_epoch"}
    speed = rows(folder / "speed.csv")
    assert speed[0]["start"] == "0.1" and speed[-1]["end"] == "20.1" and speed[-1]["third_epoch"]
    assert not speed[0].keys() & {"before", "after", "each", "late", "val/mean"}


@pytest.mark.extended
def test_the_values_of_callbacks_are_resumed_exactly(run, monkeypatch, with_logger):
    """Checkpoints are those of every fifth step. A logger changes nothing."""
    code, whole = run(*MANY[:-1], "logger=wandb")
    (logged,) = with_logger()
    assert code == 0 and [int(r["step"]) for r in logged if r["third_step"]] == [6, 12, 18]
    for fails_at in (0, 8, 19):
        monkeypatch.setattr(CALLBACKS["many"], "fails", True)
        failed, folder = run(*MANY, f"callbacks.many.fails_at={fails_at}")
        assert failed == 1 and resume_run(folder, (run.file,)) == 0
        assert (folder / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_two_callbacks_of_one_class_each_have_their_state(run, monkeypatch):
    options = ["callbacks.first.file=a.txt", "callbacks.second.file=b.txt"]
    monkeypatch.setattr(
        SignalStop, "_signal_number", lambda self, trainer, task: signal.SIGTERM * (task.step == 8)
    )
    code, folder = run(*options)
    (folder / "a.txt").unlink()
    assert code == 143 and resume_run(folder, (run.file,)) == 0
    assert [(folder / name).read_text() for name in ("a.txt", "b.txt")] == ["20", "20"]


@pytest.mark.extended
def test_a_run_goes_on_if_its_logger_does_not(run, with_logger, monkeypatch, capsys):
    """Also one with callbacks that need a logger."""
    options = ["logger=wandb", "callbacks.rate={}", "callbacks.values={}"]
    write, steps = OfRun.write, []

    def fails_at_eight(self, row, step):
        steps.append(step)
        if step == 8:
            raise OSError("no space")
        write(self, row, step)

    with monkeypatch.context() as patched:
        patched.setattr(OfRun, "write", fails_at_eight)
        assert run(*options)[0] == 0 and max(steps) == 8
    assert "The logger wandb failed (OSError: no space)" in capsys.readouterr().err
    for method in ("save", "finalize"):
        with monkeypatch.context() as patched:
            patched.setattr(loggers.CSVLogger, method, lambda *arguments: 1 / 0)
            code, folder = run(*options)
        assert code == 0 and (folder / "summary.json").exists()
    monkeypatch.setitem(CREATE, "wandb", lambda *arguments: 1 / 0)
    assert run(*options)[0] == 0
    assert "The logger wandb cannot start (ZeroDivisionError" in capsys.readouterr().err
