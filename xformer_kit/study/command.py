"""The command line that continues a study, from the overrides that Hydra was given."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

OWN = {"hydra.sweep.dir", "hydra/sweeper", "hydra.mode"}  # which a study passes to Hydra by itself


def command(words: Iterable[str], *more: str) -> str:
    """A line for the shell. `++key=value`, by which Hydra sets a key whether it exists or not, is
    typed `key=value`; a word in `more` replaces the one of the same key.
    """
    keys = {*OWN, *(word.partition("=")[0] for word in more)}
    plain = [word.removeprefix("++") for word in words]
    kept = [word for word in plain if word.partition("=")[0] not in keys]
    return shlex.join(["python", "train.py", *kept, *more])


def from_here(line: str, folder: Path) -> str:
    """The line, after a change of directory if the study was started from another one: outputs/
    lies there.
    """
    root = folder.resolve().parents[2]
    return (
        line
        if root == Path.cwd().resolve()
        else f"cd {shlex.quote(os.path.relpath(root))} && {line}"
    )
