"""The state of a run, read from its directory and its lock file."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tasks.logging import summary
from tasks.process.exit_codes import FAILED, NONFINITE, PRUNED, SIGNALS
from xformer_kit.files.saved_files import read_whole_rows, readable
from xformer_kit.study.results import Status

CLAIM = ".claimed"  # lock file of the process that trains the run
# Attempts to lock, and seconds between them: `claimed` holds the lock for an instant.
ATTEMPTS, ATTEMPT_INTERVAL = 5, 0.05


class State(NamedTuple):
    """The state of a run: its status, how far it is, and its summary if it is finished."""

    status: Status
    step: int | None = None  # last recorded step, or the step that diverged
    why: str = ""  # why the run did not finish
    facts: dict = {}  # the content of summary.json; empty unless finished

    @property
    def over(self) -> bool:
        """Whether the run has ended and is not resumed automatically."""
        return self.status in ("finished", "diverged", "failed", "pruned")


def of(run_dir: Path, pruned: bool = False) -> State:
    """Returns the state of the run in a directory. pruned: whether a pruned run counts as ended (in
    a search) or as stopped (elsewhere, where it is resumed).
    """
    if (facts := summary.read(run_dir)) is not None:
        return State("finished", facts["steps"], facts=facts)
    end = summary.read(run_dir, summary.ENDED)
    if claimed(run_dir):
        return State("running", last_step(run_dir))
    if end is not None:
        if end["code"] == NONFINITE:
            return State("diverged", end["step"], end["text"])
        if end["code"] == PRUNED:
            return State("pruned" if pruned else "stopped", last_step(run_dir), end["text"])
        if end["code"] < 128:  # not by a signal
            return State("failed", why=end["text"])
    done = last_step(run_dir)
    return State("stopped" if done else "open", done)


def record_failure(run_dir: Path, code: int) -> None:
    """Writes ended.json for a process that could not do so itself, so that the run is not repeated
    forever.
    """
    stopped = code - 128 in SIGNALS
    if code and not stopped and summary.read(run_dir, summary.ENDED) is None:
        reason = f"it ended with code {code}"
        if code > 128:
            reason = f"it was killed by {signal.Signals(code - 128).name}"
        end = {"code": FAILED, "text": f"{reason}; see train.log", "step": None}
        summary.write(end, run_dir / summary.ENDED)


def last_step(run_dir: Path) -> int | None:
    """Returns the last step in metrics.csv; None if there is none."""
    try:
        columns, rows = read_whole_rows(run_dir / "metrics.csv")
    except OSError:
        return None
    return int(rows[-1][columns.index("step")]) if rows else None


@contextmanager
def claim(run_dir: Path, name: str = CLAIM) -> Iterator[Any]:
    """Locks a run for this process; yields the lock's file, None if another process holds the lock.
    The operating system releases the lock when a process ends, and those that inherited the file.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with open(run_dir / name, "a") as file:
        for _ in range(ATTEMPTS):
            if locked := lock(file):
                break
            time.sleep(ATTEMPT_INTERVAL)
        yield file if locked else None


def claimed(run_dir: Path) -> bool:
    """Whether a process holds the lock of the run."""
    try:
        with open(readable(run_dir / CLAIM)) as file:
            return not lock(file, shared=True)
    except OSError:
        return False


def lock(file: Any, shared: bool = False, wait: bool = False) -> bool:
    """Locks a file until it is closed; returns False if another process holds the lock. On file
    systems without locks always True, and a sentence is printed.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _report_no_locks(str(error.strerror))
    return True


@cache
def _report_no_locks(reason: str) -> None:
    sentence = "its file system has no locks, so two processes or machines may train one run twice"
    print(f"study.runs: {sentence} ({reason}).", file=sys.stderr)
