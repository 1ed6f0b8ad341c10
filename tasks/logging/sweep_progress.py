"""The progress of a multirun whose jobs print nothing here, because submitit runs them elsewhere:
one line on a terminal, and one for each change in a file.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.logging import summary
from tasks.logging.console import create_console

UPDATE_SECONDS = 1.0


@contextmanager
def shown(directory: Path, launcher: str, count: int) -> Iterator[None]:
    """Shows how many jobs of a multirun have ended, until the context ends.

    directory: of the multirun, with one of each job. count: number of jobs, 0 if it is not known.
    """
    console = create_console(stderr=True)
    ended = threading.Event()

    def watch() -> None:
        shown = ""
        while not ended.wait(UPDATE_SECONDS):
            if (text := _state(directory, launcher, count)) == shown:
                continue
            shown = text
            if console.is_terminal:
                status.update(text)
            else:
                console.print(text, soft_wrap=True)

    status = console.status(f"{launcher}: jobs are submitted")
    thread = threading.Thread(target=watch, daemon=True)
    if console.is_terminal:
        status.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        status.stop()


def _state(directory: Path, launcher: str, count: int) -> str:
    """Returns such as "submitit_slurm: 2 of 8 jobs have ended, 3 run"."""
    runs = [path.parent for path in directory.glob("*/train.log")]
    ended = sum(_has_ended(run) for run in runs)
    of = f" of {count}" if count else ""
    return f"{launcher}: {ended}{of} jobs have ended, {len(runs) - ended} run"


def _has_ended(run: Path) -> bool:
    """Whether a run has finished or failed; one that a signal has stopped is resumed."""
    if (run / summary.SUMMARY).exists():
        return True
    end = summary.read(run, summary.ENDED)
    return end is not None and end["code"] < 128
