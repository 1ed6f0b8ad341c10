"""Lightning's own callbacks in a run: those that work, and those that an option replaces."""

import json
import signal

import pytest
import torch
from lightning.pytorch import callbacks

from tasks.callbacks import user_callbacks
from tasks.callbacks.stopping import SignalStop
from tasks.checkpoints import checkpoints
from tasks.run.resume import resume_run
from tests.tasks.csv_rows import rows

FILE = """
import json
from pathlib import Path

from lightning.pytorch import Callback, callbacks
from xformer_kit.config.options.callbacks import CALLBACKS


@CALLBACKS.register("early")
class Early(callbacks.EarlyStopping):
    def __init__(self, *, monitor: str = "val/loss", patience: int = 2):
        super().__init__(monitor, patience=patience)


@CALLBACKS.register("rate")
class Rate(callbacks.LearningRateMonitor):
    def __init__(self, *, log_momentum: bool = False):
        super().__init__("step", log_momentum)


@CALLBACKS.register("device")
class Device(callbacks.DeviceStatsMonitor):
    def __init__(self, *, cpu_stats: bool = True):
        super().__init__(cpu_stats)


@CALLBACKS.register("modules")
class Modules(callbacks.RichModelSummary):
    def __init__(self, *, max_depth: int = 2):
        super().__init__(max_depth)


@CALLBACKS.register("timer")
class Timer(callbacks.Timer):
    def __init__(self, *, duration: str):
        super().__init__(duration)


@CALLBACKS.register("average")
class Average(callbacks.StochasticWeightAveraging):
    def __init__(self, *, swa_lrs: float = 0.1):
        super().__init__(swa_lrs)


@CALLBACKS.register("keep")
class Keep(callbacks.ModelCheckpoint):
    def __init__(self, *, monitor: str = "val/loss"):
        super().__init__(monitor=monitor)


@CALLBACKS.register("tests")
class Tests(Callback):
    def on_test_end(self, trainer, task):
        pass

    def on_predict_start(self, trainer, task):
        pass


@CALLBACKS.register("watch")
class Watch(Callback):
    def __init__(self, run_dir: Path, *, logs: bool = False, every: int = 1):
        self.run_dir, self.logs, self.every, self.found = run_dir, logs, every, {}

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.add("batch", trainer, task)

    def on_validation_epoch_end(self, trainer, task):
        if self.logs and task.step % self.every == 0:
            task.log("val/square", float(task.step - 8) ** 2)

    def on_validation_end(self, trainer, task):
        self.add("validation", trainer, task)

    def on_train_end(self, trainer, task):
        (self.run_dir / "watch.json").write_text(json.dumps(self.found))

    def add(self, hook, trainer, task):
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.found[f"{hook} {task.step}"] = values
"""


def test_every_value_of_metrics_csv_is_in_callback_metrics(run):
    code, folder = run(
        "callbacks.watch={}", "callbacks.norms.every=5", "trainer.log_every_n_steps=5"
    )
    found = json.loads((folder / "watch.json").read_text())
    assert code == 0 and found["batch 4"] == {}
    for row in rows(folder / "metrics.csv"):
        values = {name: float(value) for name, value in row.items() if value and name != "step"}
        hook = "validation" if row["val/loss"] else "batch"
        seen = found[f"{hook} {row['step']}"]
        assert {name: seen[name] for name in values} == pytest.approx(values, rel=1e-6)
        seen = found[f"batch {row['step']}"]  # at the end of the batch, before the validation
        assert seen["train/loss"] == pytest.approx(values["train/loss"], rel=1e-6)
        assert seen["tokens_per_second"] > 0
    for row in rows(folder / "norms.csv")[1:2]:
        name = next(name for name in row if name.startswith("activation/"))
        seen = found[f"validation {row['step']}"][name]
        assert seen == pytest.approx(float(row[name]), rel=1e-6)


def test_a_metric_that_a_callback_logs_chooses_the_best_checkpoint(run, capsys):
    options = ["trainer.val_every=4", "checkpoints.metric=val/square", "checkpoints.mode=min"]
    code, folder = run("callbacks.watch.logs=true", *options)
    best = checkpoints.read(folder / "checkpoints" / "best.ckpt")
    assert code == 0 and best.best_steps == [(8, 0.0)]
    code, folder = run("callbacks.watch={}", *options)
    assert code == 2 and not folder.exists()
    assert "the run has no metric 'val/square'" in capsys.readouterr().err


@pytest.mark.extended
def test_learning_rates_and_device_statistics_are_logged(run, with_logger, monkeypatch):
    """At logged steps, and with the number of the step after a resume."""
    options = ["callbacks.rate={}", "callbacks.device={}", "trainer.log_every_n_steps=3"]
    _, every_step = run("trainer.log_every_n_steps=1")
    lr = {row["step"]: float(row["lr"]) for row in rows(every_step / "metrics.csv")}
    options += ["logger=wandb"]
    assert run(*options)[0] == 0
    monkeypatch.setattr(
        SignalStop, "_signal_number", lambda self, trainer, task: signal.SIGTERM * (task.step == 8)
    )
    code, folder = run(*options)
    assert code == 143 and resume_run(folder, (run.file,)) == 0
    whole, begun, resumed = (
        [row for row in logged if row["lr-AdamW/pg1"]] for logged in with_logger()
    )
    # Lightning reads the rates before a step that is logged: they are those of the step before.
    assert [int(row["step"]) for row in whole] == [2, 5, 8, 11, 14, 17]
    assert [int(row["step"]) for row in resumed] == [8, 11, 14, 17]
    for row in (*begun, *resumed):
        (same,) = [one for one in whole if one["step"] == row["step"]]
        assert row["lr-AdamW/pg1"] == same["lr-AdamW/pg1"]
    logged = with_logger()[0]
    for row in whole:
        assert float(row["lr-AdamW/pg1"]) == pytest.approx(lr[row["step"]], rel=1e-6)
    assert {row["step"] for row in logged if row["Device.on_train_batch_end/cpu_percent"]} == {
        f"{step}" for step in (3, 6, 9, 12, 15, 18)
    }


def test_the_summary_of_modules_is_printed(run, capsys):
    assert run("callbacks.modules={}", "trainer.max_steps=1")[0] == 0
    printed = capsys.readouterr().out
    assert "model.decoder" in printed and "Total params" in printed


@pytest.mark.extended
@pytest.mark.parametrize("option", ["checkpoints", "callbacks.early_stopping"])
def test_a_metric_that_a_validation_does_not_log_is_refused_there(run, capsys, option):
    """Lightning keeps the earlier value, which a resumed run does not have."""
    options = [f"{option}.metric=val/square", f"{option}.mode=min", "trainer.val_every=4"]
    code, _ = run(*options, "callbacks.watch={logs: true, every: 12}")
    assert code == 2 and option in capsys.readouterr().err.splitlines()[-1]
    code, _ = run(*options, "trainer.val_every=8", "callbacks.watch={logs: true, every: 8}")
    assert code == 2  # the last step is validated, too, and is no multiple of 8
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"{option}.metric: no callback has logged 'val/square' in the validation of step 20. Log"
        " it in each validation, in on_validation_epoch_end."
    )


def test_a_timer_ends_the_run_after_a_complete_step(run):
    code, folder = run("callbacks.timer.duration=00:00:00:00")
    results = json.loads((folder / "summary.json").read_text())
    assert code == 0 and results["stopped"] == "stopped by callbacks.timer at step 1 of 20"
    last = checkpoints.read(folder / "checkpoints" / "last.ckpt")
    assert last.validation["loss"] == results["val/loss"]
    assert last.callbacks["timer"]["time_elapsed"]["train"] > 0
    (folder / "summary.json").unlink()
    assert resume_run(folder, (run.file,)) == 0
    assert json.loads((folder / "summary.json").read_text())["steps"] == 1


@pytest.mark.extended
def test_lightnings_early_stopping_ends_a_resumed_run_at_the_same_step(run, monkeypatch):
    options = ["callbacks.early.monitor=train/loss", "optim.lr=3", "schedule.warmup=20"]
    options += ["trainer.max_steps=21", "trainer.val_every=1"]
    code, whole = run(*options)
    end = json.loads((whole / "summary.json").read_text())
    assert code == 0 and end["steps"] < 20
    cut = end["steps"] - 1
    monkeypatch.setattr(
        SignalStop, "_signal_number", lambda self, trainer, task: 15 * (task.step == cut)
    )
    code, folder = run(*options)
    assert code == 143 and resume_run(folder, (run.file,)) == 0
    resumed = json.loads((folder / "summary.json").read_text())
    assert (resumed["steps"], resumed["stopped"]) == (end["steps"], end["stopped"])


def test_a_metric_that_early_stopping_misses_is_refused_before_the_first_step(run, capsys):
    code, folder = run("callbacks.early.monitor=val/los")
    assert code == 2 and not folder.exists()
    error = capsys.readouterr().err
    assert "step 10" not in error
    assert error.splitlines()[-1].startswith(
        "callbacks.early: the run has no metric 'val/los'. Did you mean 'val/loss'? Known: "
    )


def test_averages_of_epochs_are_refused_with_the_options_that_replace_them(run, capsys):
    """Lightning would average the initial weights only, and restore them at the end."""
    code, folder = run("callbacks.average={}")
    assert code == 2 and not folder.exists()
    assert capsys.readouterr().err.splitlines()[-1] == (
        "callbacks.average: is not supported in a run; got"
        " Average. Try checkpoints.average=5, or ema.decay=0.999."
    )


def test_lightning_would_end_with_the_initial_weights_after_stochastic_weight_averaging(
    run, monkeypatch
):
    """The reason for its refusal: a run is one epoch, before which the only average is taken."""
    average = callbacks.StochasticWeightAveraging
    monkeypatch.delitem(user_callbacks.REPLACED, average)
    monkeypatch.setattr(average, "state_dict", lambda self: {})
    weights = []

    def on_fit_start(self, trainer, task):
        start(self, trainer, task)
        weights.append([p.detach().clone() for p in task.parameters()])

    def on_train_end(self, trainer, task):
        end(self, trainer, task)
        weights.append([p.detach().clone() for p in task.parameters()])

    start, end = average.on_fit_start, average.on_train_end
    monkeypatch.setattr(average, "on_fit_start", on_fit_start)
    monkeypatch.setattr(average, "on_train_end", on_train_end)
    assert run("callbacks.average={}")[0] == 0
    assert all(map(torch.equal, *weights))


@pytest.mark.extended
def test_hooks_that_are_never_called_are_named(run, capsys):
    assert run("callbacks.tests={}", "callbacks.device={}", "logger=wandb")[0] == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "not called" in line]
    assert notes == [
        "callbacks.tests: on_predict_start and on_test_end are not called, since a run trains and"
        " validates only."
    ]
