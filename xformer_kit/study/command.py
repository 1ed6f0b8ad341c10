"""The command line that continues a study, from Hydra's overrides."""

import os
from collections.abc import Iterable
from pathlib import Path

from xformer_kit.text.command_lines import for_shell, train

INTERNAL = {"hydra.sweep.dir", "hydra/sweeper", "hydra.mode"}  # set by the study itself


def command(words: Iterable[str], *more: str, directory: str | Path = "") -> str:
    """The shell command with these overrides, in a directory. Hydra's `++key=value` becomes
    `key=value`; an override in `more` replaces the one of the same key.
    """
    keys = {*INTERNAL, *(word.partition("=")[0] for word in more)}
    plain = [word.removeprefix("++") for word in words]
    kept = [word for word in plain if word.partition("=")[0] not in keys]
    return train(*kept, *more, directory=directory)


def from_here(folder: Path, words: Iterable[str], *more: str) -> str:
    """The command of the study in a folder, preceded by `cd` if the study was started in another
    directory.
    """
    root = folder.resolve().parents[2]
    line = command(words, *more, directory=root)
    return (
        line if root == Path.cwd().resolve() else f"cd {for_shell(os.path.relpath(root))} && {line}"
    )
