"""Starting, killing and resuming runs as a user does: `python train.py ...` in processes of their
own.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.warm import Begun, laid_over

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 180  # seconds that a step may be waited for

# Dropout, accumulation, loader workers, and an epoch's end every 11 steps.
TINY = [
    "model.dim=16",
    "model.layers=2",
    "model.dropout=0.2",
    "attn.heads=2",
    "attn.dropout=0.1",
    "data=text",
    "tokenizer=byte",
    "data.seq_len=16",
    "data.batch_size=8",
    "data.num_workers=1",
    "trainer.max_steps=80",
    "trainer.accumulate=2",
    "trainer.log_every_n_steps=1",
    "trainer.val_every=15",
    "trainer.checkpoint_every=7",
    "schedule.warmup=20",
    "logger=none",
]


def text_file(tmp_path_factory) -> Path:
    """300 random words of a small vocabulary."""
    words = random.Random(0).choices(
        [
            "the",
            "cat",
            "sat",
            "on",
            "a",
            "mat",
            "and",
            "saw",
            "what",
            "it",
            "had",
            "not",
            "seen",
            "before",
        ],
        k=300,
    )
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(words))
    return path


text = pytest.fixture(scope="module")(text_file)


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *laid_over(list(words))]


def environment(home: Path) -> dict[str, str]:
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }


def start(home: Path, run: Path, text: Path, *more: str) -> Begun:
    return Begun(
        [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *more], home, environment(home)
    )


def start_cold(home: Path, run: Path, text: Path, *more: str) -> subprocess.Popen:
    """By a Python that imports everything itself."""
    words = command(*TINY, f"data.path={text}", f"hydra.run.dir={run}", *more)
    return subprocess.Popen(
        words, cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True
    )


def environments(home: Path) -> list[dict[str, str]]:
    """Of two ranks as torchrun starts them, the first rank first."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }
    return [
        environment(home) | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(2)
    ]


def start_ranks(home: Path, words: list[str]) -> list[Begun]:
    return [
        Begun([*words, "trainer=ddp", "trainer.devices=2"], home, each)
        for each in environments(home)
    ]


def go_on(home: Path, run: Path) -> Begun:
    return Begun([f"resume={run}"], home, environment(home))


def last_step(run: Path) -> int:
    try:
        rows = (run / "metrics.csv").read_text().splitlines()[1:]
        return int(rows[-1].split(",")[0]) if rows else 0
    except (OSError, ValueError):
        return 0


def wait_for(process: Begun | subprocess.Popen, run: Path, step: int) -> None:
    """Until metrics.csv has reached a step."""
    deadline = time.monotonic() + PATIENCE
    while last_step(run) < step:
        assert process.poll() is None, f"ended before step {step}: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.002)


def kill_at(process: Begun | subprocess.Popen, run: Path, step: int) -> None:
    """kill -9 once metrics.csv has reached a step."""
    wait_for(process, run, step)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finish(process: Begun | subprocess.Popen) -> None:
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


def gone(home: Path, patience: float = 30) -> bool:
    """Whether no process is left that was started with the `environment` of `home`, or none is
    after some seconds.
    """

    def left() -> bool:
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(home).encode() in file.read_bytes():
                    return True
            except OSError:
                continue
        return False

    end = time.monotonic() + patience
    while left() and time.monotonic() < end:
        time.sleep(0.5)
    return not left()
