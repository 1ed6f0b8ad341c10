"""Writes files atomically and durably, and numbers paths."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path


def replace_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Replace a file atomically: a process that is killed leaves the old file or the new one. Line
    breaks are written unchanged. sync: whether the file is on the disk when this returns.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")  # several processes may write it
    fresh.write_text(text, encoding="utf-8", newline="")
    if sync:
        sync_path(fresh)
    os.replace(fresh, path)
    if sync:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Waits until a file, or the entries of a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def numbered_paths(path: Path) -> Iterator[Path]:
    """Yields the path, then path_2, path_3, ..."""
    yield path
    yield from (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))
