"""Runs in several processes: the same updates as with one process, one directory per job, and no
process that remains.
"""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from train_processes import (
    SMALL_DECODER,
    TIMEOUT,
    TINY,
    command,
    environment,
    finish,
    last_step,
    rank_environments,
    start,
    start_new_python,
    start_ranks,
    text,  # noqa: F401
)

from tests.forked_train import ForkedTrain, train

DDP = ["trainer=ddp", "trainer.devices=2"]
PLAIN = ["model.dropout=0", "attn.dropout=0", "data.num_workers=0", "trainer.max_steps=30"]
EXPERTS = [  # in the last layer
    "model.decoder.last=[sparse]",
    "model.decoder.variants.sparse.ffn={name: moe, experts: 3}",
    "model.decoder.variants.sparse.ffn.router={name: softmax, balance: 1.0, correction: 0.01}",
]
LONG = ["data.num_workers=0", "trainer.max_steps=100000", "trainer.val_every=null"]


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def workers_of(run: Path) -> list[int]:
    """Returns the ids of the worker processes of a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "tasks.run.worker" in words and str(run) in words:
            found.append(int(folder.name))
    return sorted(found)


def wait_until(condition, process: ForkedTrain | subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.extended
@pytest.mark.parametrize(
    "words",
    [
        ["model.freeze=[embed,decoder.0]", "optim.weight_decay=0.5"],
        ["model.freeze=[embed,decoder.0]", "model.unfreeze_at=15", "extra={unit_weights: {}}"],
        ["lora.rank=2", "lora.of=['*']"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_frozen_parameters_and_adapters_of_two_processes_are_those_of_one(words, tmp_path, text):  # noqa: F811
    one, two = tmp_path / "one", tmp_path / "two"
    words = [*PLAIN, *EXPERTS, *words]
    finish(start(tmp_path, one, text, *words, "trainer.accumulate=1"))
    for rank in start_ranks(tmp_path, [*TINY, f"data.path={text}", f"hydra.run.dir={two}", *words]):
        finish(rank)
    for (name, a), b in zip(weights(one).items(), weights(two).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=5e-6, msg=name)


def test_two_processes_make_the_update_of_one(tmp_path, text):  # noqa: F811
    one, two = tmp_path / "one", tmp_path / "two"
    words = [*PLAIN, *EXPERTS, "metrics.top_k_accuracy={}", "metrics.calibration_error={}"]
    finish(start(tmp_path, one, text, *words, "trainer.accumulate=1"))
    for rank in start_ranks(tmp_path, [*TINY, f"data.path={text}", f"hydra.run.dir={two}", *words]):
        finish(rank)
    for (name, a), b in zip(weights(one).items(), weights(two).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=5e-6, msg=name)
    for a, b in zip(table(one / "metrics.csv"), table(two / "metrics.csv"), strict=True):
        for name, rel in (
            *(("train/loss", 1e-5), ("val/loss", 1e-5)),
            *(("val/top_k_accuracy", 1e-3), ("val/calibration_error", 1e-3)),
        ):
            assert a[name] == b[name] == "" or float(a[name]) == pytest.approx(
                float(b[name]), rel=rel
            )
        loads = [
            f"train/decoder.1.ffn.load.{expert}" for expert in range(3)
        ]  # of all ranks and micro-batches
        assert [a[name] for name in loads] == [b[name] for name in loads]
        assert sum(float(a[name]) for name in loads) == pytest.approx(1)


@pytest.mark.extended
def test_in_float64_experts_of_two_processes_and_of_micro_batches_are_those_of_one(
    tmp_path,
    text,  # noqa: F811
):
    words = [*PLAIN, *EXPERTS, "trainer.precision=64-true", "trainer.max_steps=12"]
    words += ["schedule.warmup=1", f"data.path={text}"]
    finish(start(tmp_path, tmp_path / "1", text, *words, "trainer.accumulate=1"))
    finish(start(tmp_path, tmp_path / "4", text, *words, "trainer.accumulate=4"))
    for rank in start_ranks(tmp_path, [*TINY, *words, f"hydra.run.dir={tmp_path / 'ranks'}"]):
        finish(rank)
    for name, weight in weights(tmp_path / "1").items():
        for run in ("4", "ranks"):
            other = weights(tmp_path / run)[name]
            torch.testing.assert_close(other, weight, rtol=1e-9, atol=1e-10, msg=f"{run}: {name}")


@pytest.mark.extended
def test_metrics_of_answers_use_the_answers_of_all_ranks(tmp_path):
    pairs, words = tmp_path / "pairs.tsv", ["to", "be", "or", "not"]
    said = [f"{a} {b} {c} {d}" for a in words for b in words for c in words for d in words]
    pairs.write_text("".join(f"{line}\t{line}\n" for line in said))
    for name in ("one", "two"):
        words = [
            "task_defaults=null",
            "task=seq2seq",
            "model=encoder_decoder",
            "data=tsv",
            f"data.path={pairs}",
            "tokenizer=word",
            "model.dim=16",
            "model.layers=1",
            "attn.heads=2",
            "data.seq_len=8",
            "data.batch_size=16",
            "task.decoded=7",
            "logger=none",
            "schedule.warmup=1",
            "optim.lr=0.02",
            "trainer.val_every=null",
            *PLAIN,
            f"hydra.run.dir={tmp_path / name}",
        ]
        single_process = [*words, "trainer.accumulate=1"], tmp_path, environment(tmp_path)
        for rank in (
            [ForkedTrain(*single_process)] if name == "one" else start_ranks(tmp_path, words)
        ):
            finish(rank)
    one, two = (table(tmp_path / name / "metrics.csv")[-1] for name in ("one", "two"))
    for figure in ("val/exact_match", "val/rougeL", "val/chrf"):
        assert float(one[figure]) == pytest.approx(float(two[figure]), abs=1e-6)
    assert (
        0 < float(one["val/rougeL"]) < 100
    )  # neither nothing nor all is learned, so that a lost answer would show


@pytest.mark.extended
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    process = start_new_python(tmp_path, run, text, *DDP, *LONG)
    wait_until(lambda: last_step(run) > 2, process)
    assert len(workers_of(run)) == 3  # the agent and two ranks
    process.kill()
    process.wait()
    wait_until(lambda: not workers_of(run))


@pytest.mark.extended
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_dead_rank_ends_the_run_with_a_message(tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    process = start(tmp_path, run, text, *DDP, *LONG)
    wait_until(lambda: last_step(run) > 2, process)
    os.kill(workers_of(run)[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert "was killed by SIGKILL, so the run stopped. Go on with: xformer train resume=" in err
    assert "Traceback" not in err, err
    assert not workers_of(run)


@pytest.mark.extended
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_rank_without_progress_is_named_and_killed(tmp_path, text, stopped):  # noqa: F811
    """The other rank saves the state if it writes checkpoints, and the resumed run equals an
    uninterrupted one.
    """
    words = [*TINY, f"data.path={text}", *PLAIN, "trainer.max_steps=250", "trainer.val_every=null"]
    run, whole = tmp_path / "run", tmp_path / "whole"
    ranks = start_ranks(tmp_path, [*words, f"hydra.run.dir={run}", "trainer.rank_timeout=1"])
    wait_until(lambda: last_step(run) > 2, ranks[0])
    ranks[stopped].send_signal(signal.SIGSTOP)
    said = [rank.communicate(timeout=TIMEOUT)[1] for rank in ranks]
    assert (
        f"Rank {stopped} has sent no heartbeat for 1 s (trainer.rank_timeout)" in said[1 - stopped]
    )
    assert ranks[stopped].returncode == -signal.SIGKILL and ranks[1 - stopped].returncode == 1
    assert not any("Traceback" in err for err in said), said
    if stopped == 0:
        return
    step = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert f"The state after step {step} is saved. Go on with: xformer train resume=" in said[0]
    assert last_step(run) <= step < 250
    again = [ForkedTrain([f"resume={run}"], tmp_path, each) for each in rank_environments(tmp_path)]
    for rank in [*again, *start_ranks(tmp_path, [*words, f"hydra.run.dir={whole}"])]:
        finish(rank)
    assert (run / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(run)[name]), name


@pytest.mark.extended
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_signal_stops_all_ranks_at_one_step(tmp_path, text, number, code):  # noqa: F811
    """The signal is passed on to ranks that we started, or sent to all ranks, as by SLURM before it
    ends a job.
    """
    run = tmp_path / "run"
    if number == signal.SIGTERM:
        processes = [start(tmp_path, run, text, *DDP, *LONG)]
    else:
        processes = start_ranks(
            tmp_path, [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *LONG]
        )
    wait_until(lambda: last_step(run) > 2, processes[0])
    for process in processes:
        process.send_signal(number)
    err, *silent = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
    assert {process.returncode for process in processes} == {code}, err
    step = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    *before, last = err.strip().splitlines()
    assert last.startswith(
        f"Stopped by {number.name} at step {step}. Go on with: xformer train resume="
    )
    assert all(line.startswith(("decoder, ", "step ")) for line in before), err
    assert last_step(run) == step
    assert not any(silent)


@pytest.mark.extended
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_imports_ends_with_one_line(tmp_path, text, number, code):  # noqa: F811
    process = start_new_python(tmp_path, tmp_path / "run", text)
    wait_until(lambda: "libtorch_cpu" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (code, f"Stopped by {number.name}.\n")


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_failed_job_of_a_multirun_stops_no_other(tmp_path, text, launcher):  # noqa: F811
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    sweep = tmp_path / "sweep"
    words = [
        f"data.path={text}",
        *PLAIN,
        "model.dim=16,32",
        "data.seq_len=16,100000",
        "trainer.max_steps=5",
    ]
    line = ["-m", *SMALL, *words, f"hydra.sweep.dir={sweep}", f"hydra/launcher={launcher}"]
    done = train(line, tmp_path, environment(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "data.seq_len: one window, seq_len + 1 = " in done.stderr
    for job in (1, 3):
        assert f"Job {job} failed; why: {sweep}/{job}/train.log" in done.stdout
    assert (sweep / "1" / "train.log").exists() and (sweep / "3" / "train.log").exists()
    rows = table(sweep / "sweep.csv")
    assert [row["status"] for row in rows] == ["finished", "finished", "failed", "failed"]
    assert float(rows[0]["val/loss"]) <= float(rows[1]["val/loss"])
    assert {(row["data.seq_len"], row["model.dim"]) for row in rows[:2]} == {
        ("16", "16"),
        ("16", "32"),
    }
    assert (
        {row["job"] for row in rows}
        == {path.name for path in sweep.iterdir() if path.is_dir()}
        == {"0", "1", "2", "3"}
    )


@pytest.mark.extended
def test_under_torchrun_all_ranks_join_one_directory(tmp_path, text):  # noqa: F811
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    words = [*SMALL, f"data.path={text}", *PLAIN, "trainer.max_steps=5", *DDP, "name=joined"]
    done = subprocess.run(
        [*torchrun, *command(*words)[1:]],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "outputs" / "joined").iterdir()
    assert last_step(run) == 5


@pytest.mark.extended
def test_ranks_that_hold_different_configs_stop():
    from types import SimpleNamespace
    from unittest.mock import patch

    from tasks.run.checks import SameConfig
    from xformer_kit import ConfigError

    def gather(found, mine):
        found[:] = [mine, "another"]

    refused = pytest.raises(ConfigError, match=r"^config: must be the same on all ranks")
    with patch("torch.distributed.all_gather_object", gather), refused:
        SameConfig("one").on_fit_start(SimpleNamespace(world_size=2), None)


SMALL = [
    *SMALL_DECODER,
    "data.batch_size=8",
    "trainer.log_every_n_steps=1",
    "logger=none",
    "schedule.warmup=2",
]
