"""Reads and writes checkpoint files. A file is written under a temporary name, flushed and renamed,
so that a kill or a full disk leaves a valid checkpoint.

The tensors of a sharded model are in a directory next to it, shards_N of step N, which is removed
when no checkpoint has it.

A run's checkpoints/ has last.ckpt, the one before it as previous.ckpt, and best.ckpt with the best
value of checkpoints.metric; with checkpoints.keep_best above 1 or checkpoints.keep_every, also
step_N.ckpt of each kept step N. Each is a zip archive of torch.save, whose checksums are verified
when it is read.
"""

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from tasks.logging.files import sync_path
from tasks.process.exit_codes import DISK_FULL, NoRun, NotSaved
from xformer_kit.checkpoint import (
    Checkpoint,
    DamagedError,
    kept_steps,
    read,
    shard_folder,
    step_file,
)
from xformer_kit.checkpoint_shards import PREFIX, separated, write_shards

log = logging.getLogger("xformer")
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def tensor_folder(folder: Path, step: int) -> Path:
    """Returns the directory, which does not exist, for the tensors of a step that ranks share."""
    path, numbers = folder / f"{PREFIX}{step}", itertools.count(2)
    while path.exists():  # of a run that saved this step and was set back
        path = folder / f"{PREFIX}{step}_{next(numbers)}"
    return path


def write_tensors(checkpoint: Checkpoint, place: Path, group: Any = None) -> Checkpoint:
    """Writes the tensors that ranks share into a new directory; all ranks must call it, with their
    process group. Returns the checkpoint that `write` saves. Raises NotSaved on all ranks.
    """
    entries, tensors = separated(checkpoint.entries())
    with _raises_not_saved(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        return replace(checkpoint, **entries, shards=write_shards(tensors, place, group))


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Saves a checkpoint as last.ckpt; the old one becomes previous.ckpt. Raises NotSaved if it
    cannot be written; both files are then unchanged.
    """
    with _raises_not_saved(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = _write_temporary(folder / LAST, partial(_torch_save, checkpoint.entries()))
        if (folder / LAST).exists():
            os.replace(folder / LAST, folder / PREVIOUS)
        os.replace(temporary, folder / LAST)
        sync_path(folder)


def write_file(state: Any, target: Path) -> None:
    """Saves an object with torch.save, atomically. Raises NotSaved if it cannot be written."""
    with _raises_not_saved(target.parent):
        os.replace(_write_temporary(target, partial(_torch_save, state)), target)


def keep(folder: Path, step: int, best: Sequence[int], count: int, every: int | None) -> None:
    """Updates the other files after last.ckpt was written at `step`; repeating it changes nothing.

    best: the at most `count` best steps, the best one first. If count > 1, step_N.ckpt is kept for
    each of them, and always for multiples N of `every`; the other step_N.ckpt up to `step` are
    removed. best.ckpt is the file of the best step.
    """

    def is_kept(number: int) -> bool:
        return (count > 1 and number in best) or (every is not None and number % every == 0)

    with _raises_not_saved(folder):
        if is_kept(step):
            _copy(folder / LAST, step_file(folder, step))
        if best[:1] == [step]:
            _copy(folder / LAST, folder / BEST)
        for number in kept_steps(folder):
            if number <= step and not is_kept(number):
                step_file(folder, number).unlink(missing_ok=True)
        _remove_unused_shards(folder)
        sync_path(folder)


def _remove_unused_shards(folder: Path) -> None:
    """Removes the directories of tensors that no checkpoint has; none if one cannot be read that is
    not set aside.
    """
    found, used = list(folder.glob(f"{PREFIX}*")), set()
    for path in folder.glob("*.ckpt*") if found else ():
        try:
            used.add(shard_folder(path))
        except DamagedError:
            if path.suffix != ".aside":
                return
    for each in found:
        if each.name not in used:
            shutil.rmtree(each, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copies a checkpoint. It is no link: later damage to one file would be in both."""
    with open(source, "rb") as file:
        copy = partial(shutil.copyfileobj, file, length=1 << 20)
        os.replace(_write_temporary(target, copy), target)


def has_checkpoint(folder: Path) -> bool:
    """Whether last.ckpt or previous.ckpt exists."""
    return any((folder / name).exists() for name in (LAST, PREVIOUS))


def newest(
    folder: Path,
    resume_fault: Callable[[Checkpoint], str | None] | None = None,
    whole: bool = True,
) -> tuple[Path, Checkpoint] | None:
    """Returns the file of the valid checkpoint with the highest step, and the checkpoint; None if
    no file exists.

    resume_fault: returns why a run cannot resume from a checkpoint, or None; if not None, the file
    counts as damaged. whole: see `read`. Damaged files are logged and skipped. Raises NoRun if all
    are damaged, since training from step 0 would replace them.
    """
    valid: list[tuple[Path, Checkpoint]] = []
    faults = []
    kept = [step_file(folder, step) for step in kept_steps(folder)]
    for path in (folder / LAST, folder / PREVIOUS, folder / BEST, *kept):
        if not path.exists() or (valid and path.name not in (LAST, PREVIOUS)):
            continue
        try:
            checkpoint = read(path, whole)
            if resume_fault is not None and (fault := resume_fault(checkpoint)):
                raise DamagedError(f"its {fault}")
            valid.append((path, checkpoint))
        except DamagedError as error:
            faults.append(f"{path} is damaged ({error})")
    if faults and not valid:
        raise NoRun(
            f"resume: no checkpoint of the run can be read; {'; '.join(faults)}. Nothing was"
            " changed. Bring a copy of one back, or start a new run."
        )
    for fault in faults:
        log.warning("%s and is left aside.", fault)
    return max(valid, key=lambda pair: pair[1].global_step, default=None)


def set_last_aside(folder: Path) -> None:
    """Renames a last.ckpt that is damaged or older than previous.ckpt, from which the run resumes:
    the next save would move it to previous.ckpt.
    """
    with suppress(OSError):
        os.replace(folder / LAST, folder / f"{LAST}.aside")


def remove_temporary_files(folder: Path) -> None:
    """Removes the temporary files of killed processes."""
    for path in folder.glob(".*.ckpt.*"):
        path.unlink(missing_ok=True)
    _remove_unused_shards(folder)


@dataclass
class _WriteOnlyFile:
    """A file with only `write` and `flush`, so that an OSError in torch.save keeps its errno."""

    file: BinaryIO

    def write(self, data: Any) -> int:
        self.file.write(data)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


def _torch_save(state: Any, file: BinaryIO) -> None:
    torch.save(state, _WriteOnlyFile(file))  # type: ignore[arg-type]


def _write_temporary(target: Path, write_to: Callable[[BinaryIO], None]) -> Path:
    """Calls `write_to(file)` on a new file next to the target, which is then on the disk; returns
    its path.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            write_to(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


@contextmanager
def _raises_not_saved(folder: Path) -> Iterator[None]:
    """Converts errors of the file system and of torch.save to NotSaved, with the error number's
    text if there is one.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        first: BaseException = error  # torch.save raises its own error after that of the file
        while cause := first.__cause__ or first.__context__:
            first = cause
        number = getattr(first, "errno", None) or getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error).splitlines()[0]
        kept = "The last good checkpoint is untouched. " * has_checkpoint(folder)
        fix = "Make room" if number in DISK_FULL else "Put that right"
        raise NotSaved(
            f"A checkpoint could not be written into {folder}: {reason}. {kept}{fix}."
        ) from error
