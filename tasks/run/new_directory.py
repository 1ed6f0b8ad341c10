"""Creates and checks the directory of a new run or multirun. It imports no torch."""

import os
from pathlib import Path

from tasks.process.exit_codes import NoRun
from xformer_kit.files.saved_files import check_stays_inside

LOCK = ".lock"  # the first file that a run writes
# Written into the directory before it: by other processes of ours, and by Hydra.
BEFORE_LOCK = {".claim", ".claimed", ".asked", ".hydra", "train.log"}


def check_new_directory(
    directory: Path, option: str = "hydra.run.dir", written_by_runs: str = LOCK
) -> None:
    """Creates a directory for a new run. Raises NoRun if that is not possible or if it holds files
    that no run wrote, of which the run would replace those with the names of its own; ConfigError
    if a link leads out of it.

    written_by_runs: a pattern of empty files, of which one is there if runs wrote the others, such
    as one that was interrupted before its first checkpoint.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in directory.iterdir())
        reason = "" if os.access(directory, os.W_OK) else "Permission denied"
    except OSError as error:
        names, reason = [], str(error.strerror)
    if reason:
        raise NoRun(
            f"{option}: {directory} cannot be created or written ({reason}). Name another"
            " directory."
        )
    foreign = [name for name in names if name not in BEFORE_LOCK]
    if foreign and not any(
        path.is_file() and not path.stat().st_size for path in directory.glob(written_by_runs)
    ):
        raise NoRun(
            f"{option}: {directory} holds files that no run wrote, such as {foreign[0]}; nothing is"
            " overwritten. Name a new directory, or one that is empty."
        )
    check_stays_inside(directory)
