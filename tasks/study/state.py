"""The state of a run, from its directory and its lock."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tasks.logging import summary
from tasks.run.exit_codes import FAILED, NONFINITE, PRUNED, SIGNALS
from xformer_kit.registry.saved_files import read_whole_rows
from xformer_kit.study.results import Status

CLAIM = ".claimed"  # a file that whoever runs the run holds locked
# attempts, and seconds between them: whoever asks whether a run is claimed holds it for an instant
LOOKS, A_LOOK = 5, 0.05


class State(NamedTuple):
    status: Status
    step: int | None = None  # the last one that was recorded, or the one that diverged
    why: str = ""  # a sentence if the run did not finish
    facts: dict = {}  # of summary.json

    @property
    def over(self) -> bool:
        """Whether nothing more comes of the run by itself."""
        return self.status in ("finished", "diverged", "failed", "pruned")


def of(run_dir: Path, pruned: bool = False) -> State:
    """What has become of a run. `pruned`: whether one that a search ended early is over; for others
    it goes on.
    """
    if (facts := summary.read(run_dir)) is not None:
        return State("finished", facts["steps"], facts=facts)
    ended = summary.read(run_dir, summary.ENDED)
    if claimed(run_dir):
        return State("running", last_step(run_dir))
    if ended is not None and ended["code"] == NONFINITE:
        return State("diverged", ended["step"], ended["text"])
    if ended is not None and ended["code"] == PRUNED:
        return State("pruned" if pruned else "stopped", last_step(run_dir), ended["text"])
    if ended is not None and ended["code"] < 128:
        return State("failed", why=ended["text"])
    done = last_step(run_dir)
    return State("stopped" if done else "open", done)


def left(run_dir: Path, code: int) -> None:
    """Note a failure of a process that could not do so itself, so that the run is not begun again
    and again.
    """
    stopped = code in [128 + number for number in SIGNALS]
    if code and not stopped and summary.read(run_dir, summary.ENDED) is None:
        what = (
            f"it was killed by {signal.Signals(code - 128).name}"
            if code > 128
            else f"it ended with code {code}"
        )
        summary.write(
            {"code": FAILED, "text": f"{what}; train.log may say why", "step": None},
            run_dir / summary.ENDED,
        )


def last_step(run_dir: Path) -> int | None:
    """The last step in the records; None if there is none."""
    try:
        columns, rows = read_whole_rows(run_dir / "metrics.csv")
    except OSError:
        return None
    return int(rows[-1][columns.index("step")]) if rows else None


@contextmanager
def claim(run_dir: Path, name: str = CLAIM) -> Iterator[bool]:
    """Hold a run against all other processes; False where one of them holds it. The system lets go
    of it when a process ends, however it ends.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with open(run_dir / name, "w") as file:
        for _ in range(LOOKS):
            if mine := lock(file):
                break
            time.sleep(A_LOOK)
        yield mine


def claimed(run_dir: Path, name: str = CLAIM) -> bool:
    """Whether some process holds the run."""
    try:
        with open(run_dir / name) as file:
            return not lock(file, shared=True)
    except FileNotFoundError:
        return False


def lock(file: Any, shared: bool = False, wait: bool = False) -> bool:
    """Lock a file for as long as it is open; False where somebody else has it. A file system
    without locks grants every one.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
