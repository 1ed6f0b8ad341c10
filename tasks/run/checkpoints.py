"""Checkpoint files, written so that a good one always survives: next to the target, flushed,
renamed, and checked.

checkpoints/last.ckpt, the one before it as previous.ckpt, and best.ckpt with the lowest validation
loss. Each is a zip archive of torch.save with a checksum on every entry, which is verified when the
file is read.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from tasks import State
from tasks.logging.files import sync_path
from tasks.run.exit_codes import FULL, NoRun, NotSaved
from xformer_kit.model.checkpoint import DamagedError, read

log = logging.getLogger("xformer")
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def write(state: State, folder: Path) -> None:
    """Save as last.ckpt; the old one becomes previous.ckpt. Raises NotSaved, and leaves both, if it
    cannot.
    """
    with _saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = _write_temporary(folder / LAST, partial(_save, state))
        if (folder / LAST).exists():
            os.replace(folder / LAST, folder / PREVIOUS)
        os.replace(temporary, folder / LAST)
        sync_path(folder)


def write_file(state: Any, target: Path) -> None:
    """Save an object with torch.save, atomically. Raises NotSaved if it cannot."""
    with _saving(target.parent):
        os.replace(_write_temporary(target, partial(_save, state)), target)


def keep_as_best(folder: Path) -> None:
    """Copy last.ckpt to best.ckpt: a copy, not a link, so that damage to one spares the other."""
    with _saving(folder), open(folder / LAST, "rb") as source:
        copy = partial(shutil.copyfileobj, source, length=1 << 20)
        os.replace(_write_temporary(folder / BEST, copy), folder / BEST)
        sync_path(folder)


def _save(state: Any, file: BinaryIO) -> None:
    torch.save(state, _Plain(file))  # type: ignore[arg-type]


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    """Converts errors of the file system and of torch.save to NotSaved."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise NotSaved(_message(error, folder)) from error


def newest(
    folder: Path,
    needs: Iterable[str] = ("state_dict", "global_step"),
    resume_fault: Callable[[State], str | None] | None = None,
) -> tuple[Path, State] | None:
    """Returns the valid checkpoint with the highest step, and its state; None if no file exists.

    resume_fault: returns why a run cannot resume from a state, or None; if not None, the file
    counts as damaged. Damaged files are logged and skipped. Raises NoRun if all are damaged, since
    training from step 0 would replace them.
    """
    found: list[tuple[Path, State]] = []
    faults = []
    for name in (LAST, PREVIOUS, BEST):
        path = folder / name
        if name == BEST and found:
            break
        if path.exists():
            try:
                state = read(path, needs)
                if resume_fault is not None and (fault := resume_fault(state)):
                    raise DamagedError(fault)
                found.append((path, state))
            except DamagedError as error:
                faults.append(f"{path} is damaged ({error})")
    if faults and not found:
        raise NoRun(
            f"resume: no checkpoint of the run can be read; {'; '.join(faults)}. Nothing was"
            " changed. Bring a copy of one back, or start a new run."
        )
    for fault in faults:
        log.warning("%s and is left aside.", fault)
    return max(found, key=lambda pair: pair[1]["global_step"], default=None)


def rename_last(folder: Path) -> None:
    """Rename a last.ckpt that is damaged or older: the next save would move it to previous.ckpt,
    from which the run resumes.
    """
    with suppress(OSError):
        os.replace(folder / LAST, folder / f"{LAST}.aside")


@dataclass
class _Plain:
    """A file with only `write` and `flush`, so that an OSError in torch.save keeps its errno."""

    file: BinaryIO

    def write(self, data: Any) -> int:
        self.file.write(data)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


def _write_temporary(target: Path, fill: Any) -> Path:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sweep_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    for path in folder.glob(".*.ckpt.*"):
        path.unlink(missing_ok=True)


def _message(error: BaseException, folder: Path) -> str:
    cause = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    number = getattr(cause, "errno", None) or getattr(error, "errno", None)
    why = os.strerror(number) if number else str(error).splitlines()[0]
    way = "Make room" if number in FULL else "Put that right"
    good = any((folder / name).exists() for name in (LAST, PREVIOUS))
    kept = "The last good checkpoint is untouched. " if good else ""
    return f"A checkpoint could not be written into {folder}: {why}. {kept}{way}."
