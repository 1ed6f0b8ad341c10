"""A checkpoint, read only if all of it is as it was written. It may come from elsewhere: nothing in it is executed."""

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

FOLDER = 0x10  # of an entry's attributes


class DamagedError(Exception):
    """A file that is not a whole checkpoint; the text is the reason."""


def read(path: Path, needs: Iterable[str] = ("state_dict", "global_step")) -> dict[str, Any]:
    """The mapping that torch.save wrote: tensors and plain values, on the CPU.

    Each entry of the archive is compared with its checksum first. Raises DamagedError for a file that cannot be read, holds no
    mapping, or lacks one of the keys `needs`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            fault = _fault(archive)
        if fault is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # one changed bit of the archive's directory can raise any of a dozen types
        reason = next(iter(str(error).splitlines()), "").rstrip(".")
        raise DamagedError(f"{_size(path)}{type(error).__name__}: {reason}") from error
    if fault is not None:
        raise DamagedError(fault)
    if not isinstance(state, dict):
        raise DamagedError(f"it holds no mapping but {type(state).__name__}")
    if missing := [key for key in needs if key not in state]:
        raise DamagedError(f"it has no {', '.join(missing)}")
    return state


def _fault(archive: zipfile.ZipFile) -> str | None:
    """What of an archive is not as torch.save writes it."""
    for entry in archive.infolist():
        if (
            entry.external_attr & FOLDER
        ):  # zipfile reads it all the same; torch reads nothing of it, and leaves the tensor as it is
            return f"'{entry.filename}' is marked as a folder"
    damaged = archive.testzip()
    return None if damaged is None else f"'{damaged}' does not have its checksum"


def damage(path: Path) -> str | None:
    """The reason why a file is not a whole checkpoint, or None."""
    try:
        read(path)
    except DamagedError as error:
        return str(error)
    return None


def _size(path: Path) -> str:
    try:
        return f"{path.stat().st_size:,} bytes, "
    except OSError:
        return ""
