"""Laws of a step and of a run, on a tiny model in this process."""

import csv
import itertools
import json
import math
import os
import signal
import time
from typing import Any

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from tasks.modules.evaluation import EvaluatedTask
from tasks.run import hydra_app, train
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from xformer_kit.config import preflight
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import config_error


def rows(folder) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def summary_of(folder) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def weights(folder, name="last") -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def same_weights(folder, other) -> bool:
    pairs = zip(weights(folder).values(), weights(other).values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_run_writes_its_summary_logs_and_checkpoint(begin):
    code, folder = begin("run")
    assert code == 0
    summary = summary_of(folder)
    for name in (
        "val/loss",
        "val/perplexity",
        "val/bits_per_byte",
        "params",
        "flops_per_token",
        "tokens_per_second",
        "peak_memory_bytes",
        "unigram_loss",
        "steps",
        "config_hash",
        "data_fingerprint",
        "versions",
    ):
        assert name in summary, name
    assert summary["steps"] == 20 and summary["unigram_loss"] > 0
    assert math.isclose(summary["val/perplexity"], math.exp(summary["val/loss"]))
    assert {"config.yaml", "tokenizer.json", "metrics.csv", "speed.csv", "train.log"} <= {
        p.name for p in folder.iterdir()
    }
    assert [int(row["step"]) for row in rows(folder)] == list(range(1, 21))
    assert [row["step"] for row in rows(folder) if row["val/loss"]] == ["10", "20"]
    assert float(rows(folder)[-1]["val/loss"]) == pytest.approx(summary["val/loss"], rel=1e-8)
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 20
    assert all(not name.startswith("model.") for name in state["state_dict"])


def test_micro_batches_train_like_one_batch(begin):
    _, one = begin("one", "trainer.accumulate=1")
    _, four = begin("four", "trainer.accumulate=4")
    for (name, a), b in zip(weights(one).items(), weights(four).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-6, msg=name)
    for a, b in zip(rows(one), rows(four), strict=True):
        assert float(a["train/loss"]) == pytest.approx(float(b["train/loss"]), rel=1e-5)
        assert float(a["grad_norm"]) == pytest.approx(float(b["grad_norm"]), rel=1e-4)


@pytest.mark.extended
def test_validation_and_checkpoints_do_not_change_the_weights(begin):
    _, often = begin(
        "often", "model.dropout=0.3", "trainer.val_every=1", "trainer.checkpoint_every=1"
    )
    _, seldom = begin(
        "seldom",
        "model.dropout=0.3",
        "trainer.val_every=null",
        "trainer.checkpoint_every=null",
        "data.num_workers=1",
    )
    assert same_weights(often, seldom)


@pytest.mark.extended
def test_a_row_after_a_resume_has_the_losses_of_all_steps_since_the_row_before_it(begin):
    words = ["trainer.log_every_n_steps=7", "trainer.max_steps=21", "trainer.val_every=null"]
    _, whole = begin("whole", *words)
    _, folder = begin("again", *words)
    for name in (
        "summary.json",
        "checkpoints/last.ckpt",
    ):  # back to step 20, six steps after the last row
        (folder / name).unlink()
    assert resume_run(folder) == 0
    assert [row["step"] for row in rows(whole)] == ["7", "14", "21"] and rows(folder) == rows(whole)


def test_epochs_count_in_optimizer_steps(begin):
    code, folder = begin(
        "epochs", "trainer.max_steps=null", "trainer.max_epochs=2", "trainer.limit_train_batches=3"
    )
    assert code == 0
    assert rows(folder)[-1]["step"] == "6"


def test_tokens_count_in_whole_optimizer_steps(begin, capsys):
    """8 rows of 16 tokens are 128 tokens a step; a share of the warm-up is one of 6 steps."""
    words = "trainer.max_steps=null", "trainer.max_tokens=800", "schedule.warmup=0.5"
    code, folder = begin("tokens", *words)
    assert code == 0
    assert [row["step"] for row in rows(folder)] == list("123456")
    factors = [float(row["lr"]) for row in rows(folder)]
    assert factors[3] == max(factors) and factors[0] == pytest.approx(factors[3] / 4)
    assert "6 steps (768 tokens, " in (first := capsys.readouterr().err.splitlines()[0])
    assert "warm-up 3)" in first


def test_a_batch_that_accumulation_does_not_divide_is_refused(config, tmp_path, capsys):
    config = config()
    config["trainer"]["accumulate"] = 3
    fault = "data.batch_size: must be a multiple of accumulation times devices, 3 x 1 = 3; got 8."
    assert str(next(run_faults(config))).startswith(fault)
    assert start_run(config, tmp_path / "uneven") == 2
    assert fault in capsys.readouterr().err


def test_a_nonfinite_step_stops_the_run_and_keeps_the_weights(begin, capsys):
    code, folder = begin(
        "burst",
        "optim.lr=1e38",
        "schedule=constant",
        "trainer.checkpoint_every=1",
        "trainer.gradient_clip_val=null",
    )
    assert code == 3
    message = capsys.readouterr().err
    assert "is not finite. The first to break: " in message
    assert "Its first examples on this rank: " in message
    assert all(torch.isfinite(w).all() for w in weights(folder).values())


@pytest.mark.parametrize("saves", [True, False])
def test_a_nonfinite_run_saves_its_last_finite_state_and_reports_it(
    begin, capsys, monkeypatch, saves
):
    objective = OBJECTIVES["language_modeling"]
    loss, calls = objective.loss, []

    def nonfinite_from_the_fourth_step(self, model, batch):
        nats, count, report = loss(self, model, batch)
        calls.append(model.training)
        return (nats * math.nan if calls.count(True) >= 4 else nats), count, report

    monkeypatch.setattr(objective, "loss", nonfinite_from_the_fourth_step)
    more = ["trainer.checkpoint_every=null", f"trainer.enable_checkpointing={saves}"]
    code, folder = begin("unsaved", *more)
    message = capsys.readouterr().err
    assert code == 3
    assert "of step 4 is not finite" in message
    assert "start a new one with a lower optim.lr" in message
    assert "resume=" not in message
    assert ("of step 3, are kept in checkpoints/last.ckpt" in message) == saves
    assert ("Nothing is kept" in message) != saves
    assert (folder / "checkpoints" / "last.ckpt").exists() == saves
    if saves:
        assert (
            torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 3
        )
        assert all(torch.isfinite(w).all() for w in weights(folder).values())
        assert resume_run(folder) == 3
        assert "of step 4 is not finite" in capsys.readouterr().err


def test_setting_the_clock_back_changes_no_duration(begin, monkeypatch):
    hours = itertools.count(time.time(), -3600)
    monkeypatch.setattr(time, "time", lambda: next(hours))
    _, folder = begin("run")
    assert 0 < summary_of(folder)["seconds"] < 600
    with open(folder / "speed.csv", newline="") as file:
        assert all(float(row["seconds_per_step"]) > 0 for row in csv.DictReader(file))


def test_validation_time_does_not_count_as_step_time(begin, monkeypatch):
    now, validation_step, validated = time.perf_counter, EvaluatedTask.validation_step, []
    monkeypatch.setattr(time, "perf_counter", lambda: now() + 1000 * len(validated))

    def slow(task, batch, index):
        validated.append(index)
        return validation_step(task, batch, index)

    monkeypatch.setattr(EvaluatedTask, "validation_step", slow)
    _, folder = begin("run")
    with open(folder / "speed.csv", newline="") as file:
        assert max(float(row["seconds_per_step"]) for row in csv.DictReader(file)) < 100
    assert summary_of(folder)["seconds"] > 1000 * len(validated) > 1000


def test_a_run_that_skipped_every_step_ends_as_nonfinite(begin, capsys):
    code, folder = begin(
        "lost", "trainer.on_nonfinite=skip", "init.std=1e30", "trainer.max_steps=3"
    )
    assert code == 3 and not (folder / "summary.json").exists()
    message = capsys.readouterr().err
    assert (
        "skip left out all steps (3), whose loss or gradient is not finite, so the model has"
        " learned nothing: start a new one" in message
    )
    assert "resume=" not in message and "Traceback" not in message
    assert resume_run(folder) == 3


def test_a_nonfinite_step_can_be_skipped(begin, monkeypatch, capsys):
    objective = OBJECTIVES["language_modeling"]
    loss, calls = objective.loss, []

    def nonfinite_in_the_fourth_step(self, model, batch):
        nats, count, report = loss(self, model, batch)
        calls.append(model.training)
        return (nats * math.nan if calls.count(True) == 4 else nats), count, report

    monkeypatch.setattr(objective, "loss", nonfinite_in_the_fourth_step)
    code, folder = begin("skip", "trainer.on_nonfinite=skip")
    assert code == 0
    assert summary_of(folder)["steps_left_out"] == 1
    assert "1 of 20 steps: their loss or gradient was not finite" in capsys.readouterr().out
    assert [row["step"] for row in rows(folder) if row["train/loss"] == "nan"] == ["4"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGUSR1, 138), (signal.SIGTERM, 143)]
)
def test_a_signal_saves_the_step_and_ends_the_run(begin, monkeypatch, number, code):
    from tasks.callbacks.recorder import Recorder

    end = Recorder.on_train_batch_end

    def send(self, trainer, task):
        end(self, trainer, task)
        if task.step == 7:
            os.kill(os.getpid(), number)

    spent_before = {
        "seconds": 1000.0,
        "measured_seconds": 1000.0,
        "tokens": 1.0,
        "peak_memory_bytes": 1 << 60,
    }
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "on_train_batch_end", send)
        patch.setattr(Recorder, "spent", lambda self, task, device: spent_before)
        found, folder = begin("cut", "model.dropout=0.1")
    assert found == code
    assert torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert resume_run(folder) == 0
    _, whole = begin("whole", "model.dropout=0.1")
    assert same_weights(folder, whole)
    assert (folder / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    resumed, other = summary_of(folder), summary_of(whole)
    assert (
        1000 < resumed["seconds"] < 1100 and other["seconds"] < 100
    )  # of both processes that it took
    assert (
        resumed["tokens_per_second"] < other["tokens_per_second"] / 2
        and resumed["peak_memory_bytes"] == 1 << 60
    )


@pytest.mark.extended
def test_overfitting_a_few_batches_lowers_the_loss(begin):
    code, folder = begin(
        "overfit", "debug=overfit", "optim.lr=1e-2", "trainer.max_steps=150", "model.dim=32"
    )
    assert code == 0
    assert float(rows(folder)[-1]["train/loss"]) < 0.5 * float(rows(folder)[0]["train/loss"])


def test_speed_is_measured_without_warm_up_steps(begin):
    _, folder = begin("short", "trainer.max_steps=3")
    assert summary_of(folder)["tokens_per_second"] > 0


@pytest.mark.extended
def test_a_run_stopped_by_max_time_reports_it_and_can_be_resumed(begin, capsys, monkeypatch):
    from tasks.callbacks.stopping import Deadline

    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "_over", lambda self, trainer, task: task.step == 7)
        code, folder = begin("timed", "model.dropout=0.1", "trainer.max_time=00:00:00:01")
    message = "stopped by trainer.max_time at step 7 of 20"
    assert code == 0
    assert message in capsys.readouterr().out
    summary = summary_of(folder)
    assert (summary["steps"], summary["stopped"]) == (7, message)
    monkeypatch.setattr(Deadline, "_over", lambda self, trainer, task: False)
    assert resume_run(folder) == 0
    summary = summary_of(folder)
    assert (summary["steps"], summary["stopped"]) == (20, None)
    _, whole = begin("untimed", "model.dropout=0.1")
    assert same_weights(folder, whole)
    assert [row["step"] for row in rows(folder)] == [row["step"] for row in rows(whole)]


@pytest.mark.extended
def test_max_time_ends_a_run_after_that_time(begin):
    code, folder = begin(
        "clock", "trainer.max_time=00:00:00:01", "trainer.max_steps=1000000", "schedule=constant"
    )
    assert code == 0
    assert "stopped by trainer.max_time at step" in summary_of(folder)["stopped"]


def test_a_vocab_size_below_the_tokenizers_is_refused_before_training(config, tmp_path, capsys):
    config = config("tokenizer=char")
    config["model"]["vocab_size"] = 3
    assert start_run(config, tmp_path / "few") == 2
    err = capsys.readouterr().err
    assert err.startswith("model.vocab_size: must be at least the tokenizer's ")
    assert err.endswith("; got 3. Set it to null.\n")
    assert not (tmp_path / "few" / "checkpoints").exists()


def test_without_checkpoints_no_command_that_needs_one_is_proposed(begin, capsys):
    words = ["trainer.enable_checkpointing=false", "trainer.checkpoint_every=null"]
    code, _ = begin("bare", *words, "trainer.max_steps=3")
    out = capsys.readouterr().out
    assert code == 0
    assert "xformer generate" not in out
    assert "resume=" not in out


def test_an_error_while_a_signal_ends_the_run_does_not_hide_the_signal(begin, monkeypatch):
    from tasks.modules.data import DataModule
    from tasks.process.exit_codes import StoppedBySignal

    def fail(self, *_):
        try:
            raise StoppedBySignal(signal.SIGTERM, 0)
        finally:
            raise AttributeError("_iterator")

    monkeypatch.setattr(DataModule, "train_dataloader", fail)
    assert begin("early")[0] == 143


def test_a_run_on_a_cpu_keeps_the_matmul_precision(begin):
    begin("precise", "trainer.max_steps=1", "schedule.warmup=0")
    assert (
        torch.get_float32_matmul_precision() == "highest"
    )  # "high" takes them to kernels half as fast


def test_every_rank_writes_its_message_for_torchrun(tmp_path, monkeypatch, capsys):
    """The first rank's screen is silent about the others, and torchrun names the one that ended
    first.
    """
    file = tmp_path / "error.json"
    for name, value in (
        ("TORCHELASTIC_RUN_ID", "x"),
        ("RANK", "1"),
        ("TORCHELASTIC_ERROR_FILE", str(file)),
    ):
        monkeypatch.setenv(name, value)
    assert train.report_end(config_error("data.path", "leads nowhere")) == 2
    assert capsys.readouterr().err == ""
    assert ProcessFailure(1, 1234, 2, str(file)).message["message"] == "data.path: leads nowhere."


@pytest.mark.parametrize("words", [["study=norm_placement"], ["-m", "model.dim=32,64"]], ids=str)
def test_studies_and_multiruns_are_refused_in_ranks_of_a_launcher(words, monkeypatch, capsys):
    """Each rank would run them all, and wait for the others of its run for ever."""
    for name, value in (
        ("TORCHELASTIC_RUN_ID", "x"),
        ("RANK", "0"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("WORLD_SIZE", "4"),
    ):
        monkeypatch.setenv(name, value)
    assert hydra_app.run_line(preflight([*words, "logger=none"])) == 2
    assert (
        capsys.readouterr().err
        == f"{'-m' if words[0] == '-m' else 'study'}: starts the processes of its runs by itself;"
        " got 4 that torchrun or SLURM started. Try python train.py with trainer.devices=4.\n"
    )
