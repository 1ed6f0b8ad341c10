"""How far is a run? What its directory says, and who is at work in it."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tasks.logging import summary
from tasks.run.exit_codes import FAILED, NONFINITE, PRUNED, SIGNALS
from xformer_kit.registry.saved_files import read_whole_rows

Status = Literal[
    "finished", "diverged", "failed", "pruned", "running", "stopped", "open", "left out"
]
CLAIM = ".claimed"  # a file that whoever runs the run holds locked
# attempts, and seconds between them: whoever asks whether a run is claimed holds it for an instant
LOOKS, A_LOOK = (
    5,
    0.05,
)


class State(NamedTuple):
    """`step` of `steps` where the run is under way, or where it diverged; `why` in a sentence where
    it did not finish.
    """

    status: Status
    step: int | None = None
    steps: int | None = None
    why: str = ""
    facts: dict[str, Any] = {}  # of summary.json

    @property
    def over(self) -> bool:
        """Whether nothing more comes of the run by itself."""
        return self.status in ("finished", "diverged", "failed", "pruned")


def of(run_dir: Path, pruned: bool = False) -> State:
    """What has become of a run. `pruned`: whether one that a search ended early is over; for others
    it goes on.
    """
    if (facts := summary.read(run_dir)) is not None:
        return State("finished", facts["steps"], facts["steps"], facts=facts)
    ended = summary.read(run_dir, summary.ENDED)
    if claimed(run_dir):
        return State("running", *progress(run_dir))
    if ended is not None and ended["code"] == NONFINITE:
        return State("diverged", ended["step"], why=ended["text"])
    if ended is not None and ended["code"] == PRUNED:
        return State("pruned" if pruned else "stopped", *progress(run_dir), why=ended["text"])
    if ended is not None and ended["code"] < 128:
        return State("failed", why=ended["text"])
    done, steps = progress(run_dir)
    return State("stopped" if done else "open", done, steps)


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


def progress(run_dir: Path) -> tuple[int | None, int | None]:
    """(last step that the records show, None where they show none; steps of the run, where the
    config says).
    """
    try:
        columns, rows = read_whole_rows(run_dir / "metrics.csv")
    except OSError:
        return None, None
    return (int(rows[-1][columns.index("step")]) if rows else None), None


@contextmanager
def claim(run_dir: Path, name: str = CLAIM) -> Iterator[bool]:
    """Hold a run against all other processes; False where one of them holds it. The system lets go
    of it when a process ends, however it ends.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with open(run_dir / name, "w") as file:
        for _ in range(LOOKS):
            if mine := _lock(file):
                break
            time.sleep(A_LOOK)
        yield mine


def claimed(run_dir: Path, name: str = CLAIM) -> bool:
    """Whether some process holds the run."""
    try:
        with open(run_dir / name) as file:
            return not _lock(file, shared=True)
    except FileNotFoundError:
        return False


def _lock(file: Any, shared: bool = False) -> bool:
    """Lock a file for as long as it is open; False where somebody else has it. A file system
    without locks grants every one.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
