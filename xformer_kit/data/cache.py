"""The cache of prepared tokens: a directory per fingerprint, which is complete or does not exist.

A preparation writes into a directory of its own, flushes it to the disk, and renames it; a second
process uses the directory of the first. `index/` remembers the content of a corpus by sizes and
times, so that files are not hashed for every run.
"""

import hashlib
import inspect
import json
import logging
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data.refused import refused

try:
    import fcntl
except ImportError:  # on Windows two preparations may do the same work twice, which is safe
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("xformer")
LEFT_OVER = 24 * 3600  # seconds after which the directory of a killed preparation is removed


class CacheRemovedError(RuntimeError):
    """A file of prepared tokens was removed while a run reads it. Of one argument, so that a loader
    process can raise it.
    """


def home(cache: str | None) -> Path:
    """The directory of all prepared data: `data.cache`, else xformer_kit in the user's cache
    directory (XDG).
    """
    if cache is not None:
        return Path(cache).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "xformer_kit")


def digest(value: Any) -> str:
    """sha256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def code_of(component: type) -> str | None:
    """sha256 of the file of a user's own component: changed code is other data. None for the
    components of this package.
    """
    module = component.__module__
    if module.split(".")[0] == "xformer_kit":
        return None
    try:
        return hashlib.sha256(inspect.getsource(sys.modules[module]).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return module


def remembered(base: Path, stamp: Any, find: Callable[[], Any]) -> Any:
    """The result of `find`, plain values, or its earlier result with the same stamp."""
    entry = base / "index" / f"{digest(stamp)[:32]}.json"
    try:
        return json.loads(entry.read_text())["content"]
    except (OSError, ValueError):
        content = find()
    with suppress(OSError):  # a cache that is complete may be read-only
        entry.parent.mkdir(parents=True, exist_ok=True)
        write(entry, json.dumps({"content": content}))
    return content


def opened(folder: Path) -> dict[str, Any] | None:
    """The contents of `meta.json` of a prepared directory; None if there is none, or if a file has
    another checksum than was written. Reads all files, at the speed of the disk.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text())
        whole = all(_sum(folder / name) == sum for name, sum in meta["sums"].items())
        return meta if whole else None
    except (OSError, ValueError):
        return None


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raises CacheRemovedError if a file of prepared tokens no longer exists."""
    try:
        yield
    except FileNotFoundError:
        raise CacheRemovedError(
            f"data.cache: the prepared tokens were removed during the run ({file})."
        ) from None


def obtain(folder: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The prepared directory's meta data, made by `make(empty directory)` if it does not exist.

    Safe with any number of processes, which take turns, and when killed at any moment. Raises
    ConfigError if it cannot be written.
    """
    if meta := opened(folder):
        return meta
    base = folder.parent
    with writing(base):
        base.mkdir(parents=True, exist_ok=True)
        lock = open(folder.with_name(folder.name + ".lock"), "a")  # noqa: SIM115, closed below
    with lock:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks, where the rename is still safe
                fcntl.flock(lock, fcntl.LOCK_EX)  # freed when it is closed
        if meta := opened(folder):
            return meta
        if folder.exists():
            log.warning("data.cache: '%s' is not as it was written; it is prepared again.", folder)
        with writing(base):
            _sweep(base)
            fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=base))
        try:
            meta = make(fresh)
            with writing(base):
                _seal(fresh, meta)
                _publish(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    meta = opened(folder)
    if meta is None:
        raise refused(
            "data.cache",
            f"must keep what is written; '{folder}' is incomplete",
            fix="Set data.cache elsewhere.",
        )
    return meta


def _seal(fresh: Path, meta: dict[str, Any]) -> None:
    """Write meta.json with the checksum of every file, and flush all of it to the disk."""
    sums = {file.name: _sum(file) for file in sorted(fresh.iterdir())}
    write(fresh / "meta.json", json.dumps(meta | {"sums": sums}, indent=1))
    for file in [*fresh.iterdir(), fresh]:
        _flush(file)


def _publish(fresh: Path, folder: Path) -> None:
    """Rename; another's complete directory stays, a damaged one makes room."""
    if opened(folder):
        return
    try:
        os.replace(fresh, folder)
    except OSError:
        if opened(folder):
            return
        aside = tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent)
        os.replace(folder, Path(aside, "damaged"))
        os.replace(fresh, folder)
        shutil.rmtree(aside, ignore_errors=True)
    _flush(folder.parent)


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@contextmanager
def writing(base: Path) -> Iterator[None]:
    """Raises ConfigError for an error of the file system."""
    try:
        yield
    except OSError as error:
        raise refused(
            "data.cache",
            "must be a directory with room for the prepared tokens",
            f"'{base}' ({reason_of(error)})",
            "Set data.cache to another directory.",
        ) from error


@contextmanager
def appending(path: Path) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that appends the bytes of an array to a new file of a preparation.

    `ndarray.tofile` does not name the cause of a failure.
    """
    base = path.parent.parent
    with writing(base):
        file = open(path, "wb", buffering=0)  # noqa: SIM115, closed below

    def append(array: np.ndarray) -> None:
        left = memoryview(array.tobytes())
        with writing(base):
            while left:
                left = left[file.write(left) :]

    with file:
        yield append


def mapped(file: Path, dtype: str, size: int) -> np.ndarray:
    """A prepared array, read as it is touched. It is a plain array: slicing a memmap costs three
    times as much.
    """
    if not size:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    with reading(file):
        return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=(size,)))


class MapsFiles:
    """Base of what holds arrays of prepared files: a loader worker maps them again, not a copy."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not isinstance(v, np.ndarray)}


def _sweep(base: Path) -> None:
    """Remove the directories of killed preparations."""
    for path in base.glob(".*.tmp"):
        with suppress(OSError):  # another process was faster
            if time.time() - path.stat().st_mtime > LEFT_OVER:
                shutil.rmtree(path, ignore_errors=True)


def _sum(path: Path) -> str:
    """CRC-32 of a file, in hexadecimal: faster than a disk, and misses one change in 2**32."""
    found = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(2**22):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


def write(path: Path, text: str) -> None:
    """Write a file, complete or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    _flush(beside)
    os.replace(beside, path)


def _flush(path: Path) -> None:
    """Flush a file to the disk, or a directory if the system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
