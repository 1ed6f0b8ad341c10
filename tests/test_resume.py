"""A run that is killed and resumed ends bit for bit where the uninterrupted run ends."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 180  # seconds that a step may be waited for

# Dropout, accumulation, loader workers, and an epoch's end every 11 steps.
TINY = [
    "model.dim=16", "model.layers=2", "model.dropout=0.2", "attn.heads=2", "attn.dropout=0.1", "data=text", "tokenizer=byte",
    "data.seq_len=16", "data.batch_size=8", "data.num_workers=1", "trainer.max_steps=160", "trainer.accumulate=2",
    "trainer.log_every_n_steps=1", "trainer.val_every=25", "trainer.checkpoint_every=7", "schedule.warmup=20", "logger=none",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    words = random.Random(0).choices(
        ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "what", "it", "had", "not", "seen", "before"], k=300
    )
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(words))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *words]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(home / "cache"), "CUDA_VISIBLE_DEVICES": ""}


def start(home: Path, run: Path, text: Path, *more: str) -> subprocess.Popen:
    words = command(*TINY, f"data.path={text}", f"hydra.run.dir={run}", *more)
    return subprocess.Popen(words, cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True)


def go_on(home: Path, run: Path) -> subprocess.Popen:
    return subprocess.Popen(
        command(f"resume={run}"), cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True
    )


def last_step(run: Path) -> int:
    try:
        rows = (run / "metrics.csv").read_text().splitlines()[1:]
        return int(rows[-1].split(",")[0]) if rows else 0
    except (OSError, ValueError):
        return 0


def kill_at(process: subprocess.Popen, run: Path, step: int) -> None:
    """kill -9 once metrics.csv has reached a step."""
    deadline = time.monotonic() + PATIENCE
    while last_step(run) < step:
        assert process.poll() is None, f"ended before step {step}: {process.stderr.read()}"
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finish(process: subprocess.Popen) -> None:
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def state(run: Path) -> dict:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_ends_where_the_uninterrupted_one_ends(tmp_path, text, processes):
    more = ["trainer=ddp", f"trainer.devices={processes}"] if processes > 1 else []
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(start(tmp_path, whole, text, *more))
    process = start(tmp_path, cut, text, *more)
    for step in sorted(random.sample(range(1, 140), 2 if processes == 1 else 1)):
        kill_at(process, cut, step)
        process = go_on(tmp_path, cut)
    finish(process)
    a, b = state(whole), state(cut)
    assert a["global_step"] == b["global_step"] == 160
    for part in ("state_dict", "optimizer", "window", "best"):
        assert same(a[part], b[part]), part
    assert (cut / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_a_finished_run_says_so_and_one_without_checkpoint_starts_at_step_0(tmp_path, text):
    run = tmp_path / "run"
    process = start(tmp_path, run, text, "trainer.checkpoint_every=null", "trainer.val_every=null")
    kill_at(process, run, 3)
    assert not (run / "checkpoints").exists()
    finish(go_on(tmp_path, run))
    again = subprocess.run(
        command(f"resume={run}"), cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert again.returncode == 0
    assert again.stdout == f"The run in {run} is finished: 160 steps. Nothing is left to do.\n"
    begun = subprocess.run(command(*TINY, f"data.path={text}", f"hydra.run.dir={run}"), env=environment(tmp_path),
                           capture_output=True, text=True)  # fmt: skip
    assert begun.returncode == 2
    assert "holds a run with checkpoints already; nothing is overwritten." in begun.stderr


def test_other_data_than_the_run_began_with_is_refused(tmp_path, text):
    run, own = tmp_path / "run", tmp_path / "own.txt"
    own.write_text(text.read_text())
    kill_at(start(tmp_path, run, own), run, 20)
    own.write_text(text.read_text().replace("cat", "dog"))
    process = go_on(tmp_path, run)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "data: the text must be the one that the run began with" in err
