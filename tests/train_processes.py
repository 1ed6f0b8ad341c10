"""Starts, kills and resumes runs, `python train.py ...`, in separate processes."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.forked_train import ForkedTrain, without_repeated_keys

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 180  # seconds to wait for a step

# A run with dropout, accumulation and loader workers, whose epochs end every 11 steps.
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


# A small decoder on a file of text, as overrides.
SMALL_DECODER = [
    "model.dim=16",
    "model.layers=2",
    "attn.heads=2",
    "data=text",
    "tokenizer=byte",
    "data.seq_len=16",
]


def text_file(tmp_path_factory) -> Path:
    """Writes 300 random words of a small vocabulary to a file. Returns its path."""
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
    """Returns the command line of `python train.py` with these overrides."""
    return [sys.executable, str(ROOT / "train.py"), *without_repeated_keys(list(words))]


def environment(home: Path) -> dict[str, str]:
    """Returns environment variables for a process on a CPU with its cache in `home`."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(home / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }


def start(home: Path, run: Path, text: Path, *more: str) -> ForkedTrain:
    """Starts a run in a fork of a process with all imports."""
    return ForkedTrain(
        [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *more], home, environment(home)
    )


def start_new_python(home: Path, run: Path, text: Path, *more: str) -> subprocess.Popen:
    """Starts a run in a new Python process."""
    words = command(*TINY, f"data.path={text}", f"hydra.run.dir={run}", *more)
    return subprocess.Popen(
        words, cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True
    )


def rank_environments(home: Path, count: int = 2) -> list[dict[str, str]]:
    """Returns the environment variables of `count` ranks as torchrun sets them."""
    while True:  # the ranks use two ports that follow each other
        with socket.socket() as free, socket.socket() as following, suppress(OSError):
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
            following.bind(("localhost", port + 1))
            break
    shared = {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }
    return [
        environment(home) | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(count)
    ]


def start_ranks(
    home: Path, words: list[str], count: int = 2, trainer: str = "ddp"
) -> list[ForkedTrain]:
    """Starts the ranks of a run."""
    strategy = [f"trainer={trainer}", f"trainer.devices={count}"]
    return [ForkedTrain([*words, *strategy], home, each) for each in rank_environments(home, count)]


def resume(home: Path, run: Path) -> ForkedTrain:
    """Starts a process that resumes a run."""
    return ForkedTrain([f"resume={run}"], home, environment(home))


def last_step(run: Path) -> int:
    """Returns the last step in metrics.csv; 0 if there is none."""
    try:
        rows = (run / "metrics.csv").read_text().splitlines()[1:]
        return int(rows[-1].split(",")[0]) if rows else 0
    except (OSError, ValueError):
        return 0


def wait_for(process: ForkedTrain | subprocess.Popen, run: Path, step: int) -> None:
    """Waits until metrics.csv has reached a step."""
    deadline = time.monotonic() + TIMEOUT
    while last_step(run) < step:
        assert process.poll() is None, f"ended before step {step}: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.002)


def kill_at(process: ForkedTrain | subprocess.Popen, run: Path, step: int) -> None:
    """Kills a process by SIGKILL when metrics.csv has reached a step."""
    wait_for(process, run, step)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finish(process: ForkedTrain | subprocess.Popen) -> None:
    """Waits for the end of a process, and asserts that it succeeded."""
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err


def all_ended(home: Path, timeout: float = 30) -> bool:
    """Whether all processes that were started with the `environment` of `home` end within
    `timeout` seconds.
    """

    def any_runs() -> bool:
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if str(home).encode() in file.read_bytes():
                    return True
            except OSError:
                continue
        return False

    end = time.monotonic() + timeout
    while any_runs() and time.monotonic() < end:
        time.sleep(0.5)
    return not any_runs()
