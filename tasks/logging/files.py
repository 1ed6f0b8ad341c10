"""Files that are written whole or not at all."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path


def replace_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write next to the path and rename, so that a kill leaves the old file or the new one; line
    ends are kept. `sync`: the file is on the disk when this returns.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")  # two workers write one plan
    fresh.write_text(text, encoding="utf-8", newline="")
    if sync:
        sync_path(fresh)
    os.replace(fresh, path)
    if sync:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def numbered(path: Path) -> Iterator[Path]:
    """The path, then path_2, path_3, ..."""
    yield path
    yield from (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))
