"""The cache of prepared tokens: a directory per fingerprint, which is complete or does not exist.

A preparation writes into a temporary directory, flushes it to the disk, and renames it; a second
process waits and then uses the directory of the first. `index/` holds the fingerprint of a corpus
by the sizes and times of its files, so that files are not hashed for every run.
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

from xformer_kit.data.plain import Plain
from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

try:
    import fcntl
except ImportError:  # on Windows two preparations may do the same work twice, which is safe
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("xformer")
DIGITS = 32  # of the fingerprint that names a prepared directory
MAX_AGE = 24 * 3600  # seconds after which the directory of a killed preparation is removed


class CacheRemovedError(RuntimeError):
    """A file of prepared tokens was removed while a run reads it.

    It has one argument, so that a loader process can raise it.
    """


def directory(cache: str | None) -> Path:
    """Returns the directory of all prepared data: `data.cache` or, if it is None, xformer_kit in
    the user's cache directory (XDG).
    """
    if cache is not None:
        return user_path(cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or user_path("~/.cache"), "xformer_kit")


def digest(value: Any) -> str:
    """Returns the sha256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def code_hash(component: type) -> str | None:
    """Returns the sha256 of the file of a user's component, since changed code may make other data;
    None for components of this package.
    """
    module = component.__module__
    if module.split(".")[0] == "xformer_kit":
        return None
    try:
        return hashlib.sha256(inspect.getsource(sys.modules[module]).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return module


def cached_result(base: Path, stamp: Any, compute: Callable[[], Any]) -> Any:
    """Returns the result of `compute`, plain values, cached by the stamp."""
    entry = base / "index" / f"{digest(stamp)[:DIGITS]}.json"
    try:
        return json.loads(entry.read_text())["content"]
    except (OSError, ValueError):
        content = compute()
    with suppress(OSError):  # the cache may be read-only
        entry.parent.mkdir(parents=True, exist_ok=True)
        if not entry.parent.is_symlink():  # it may lead out of the cache
            write(entry, json.dumps({"content": content}))
    return content


def read_meta(folder: Path) -> Plain | None:
    """Returns the contents of `meta.json` of a prepared directory; None if there is none or if the
    checksum of a file is wrong. Reads all files.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text())
        intact = all(_checksum(folder / name) == sum for name, sum in meta["sums"].items())
        return meta if intact else None
    except (OSError, ValueError):
        return None


def get_or_make(folder: Path, make: Callable[[Path], Plain]) -> Plain:
    """Returns the meta data of a prepared directory; if it does not exist, `make(empty directory)`
    writes its files and returns the meta data.

    Safe with several processes, of which one prepares and the others wait, and when killed at any
    moment. Raises ConfigError if the directory cannot be written.
    """
    if meta := read_meta(folder):
        return meta
    base = folder.parent
    with write_errors(base):
        base.mkdir(parents=True, exist_ok=True)
        path = folder.with_name(folder.name + ".lock")
        lock = open(path, "a", opener=_open_no_link)  # noqa: SIM115, closed below
    with lock:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks, where the rename is still safe
                fcntl.flock(lock, fcntl.LOCK_EX)  # released when it is closed
        if meta := read_meta(folder):
            return meta
        if folder.exists():
            log.warning("data.cache: '%s' is not as it was written; it is prepared again.", folder)
        with write_errors(base):
            _remove_left_over(base)
            fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=base))
        try:
            meta = make(fresh)
            with write_errors(base):
                sealed = _seal(fresh, meta)
                _publish(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return sealed


def _seal(fresh: Path, meta: Plain) -> Plain:
    """Writes meta.json with the checksum of every file, which is returned, and flushes all files to
    the disk.
    """
    sums = {file.name: _checksum(file) for file in sorted(fresh.iterdir())}
    sealed = {**meta, "sums": sums}
    write(fresh / "meta.json", json.dumps(sealed, indent=1))
    for file in [*fresh.iterdir(), fresh]:
        _flush(file)
    return sealed


def _publish(fresh: Path, folder: Path) -> None:
    """Renames `fresh` to `folder` if no other process has completed it; replaces a damaged one."""
    if read_meta(folder):
        return
    try:
        os.replace(fresh, folder)
    except OSError:
        if read_meta(folder):
            return
        aside = tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent)
        os.replace(folder, Path(aside, "damaged"))
        os.replace(fresh, folder)
        shutil.rmtree(aside, ignore_errors=True)
    _flush(folder.parent)


@contextmanager
def write_errors(base: Path) -> Iterator[None]:
    """Raises ConfigError for an OSError while the cache is written."""
    try:
        yield
    except OSError as error:
        raise config_error(
            "data.cache",
            "must be a directory with room for the prepared tokens",
            f"'{base}' ({one_line(error)})",
            "Set data.cache to another directory.",
        ) from error


@contextmanager
def append_file(path: Path) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that appends the bytes of an array to a new file of a preparation.

    `ndarray.tofile` does not report the cause of a failure.
    """
    base = path.parent.parent
    with write_errors(base):
        file = open(path, "wb", buffering=0)  # noqa: SIM115, closed below

    def append(array: np.ndarray) -> None:
        remaining = memoryview(array.tobytes())
        with write_errors(base):
            while remaining:
                remaining = remaining[file.write(remaining) :]

    with file:
        yield append


def memory_map(file: Path, dtype: str, size: int) -> np.ndarray:
    """Returns a prepared array, memory-mapped, as a plain ndarray: slicing a memmap takes three
    times as long. Raises CacheRemovedError if the file was removed.
    """
    if not size:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    try:
        return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=(size,)))
    except FileNotFoundError:
        raise CacheRemovedError(
            f"data.cache: the prepared tokens were removed during the run ({file})."
        ) from None


class MemoryMapped:
    """Base of data sets with memory-mapped arrays, which are not pickled: a loader worker maps them
    again.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not isinstance(v, np.ndarray)}


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file that is no symbolic link; elsewhere than in POSIX also a link."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _remove_left_over(base: Path) -> None:
    """Removes the directories of killed preparations, not others of a similar name: data.cache may
    name any directory.
    """
    for path in base.glob(f".{'[0-9a-f]' * DIGITS}.*.tmp"):
        with suppress(OSError):  # another process was faster
            if time.time() - path.stat().st_mtime > MAX_AGE:
                shutil.rmtree(path, ignore_errors=True)


def _checksum(path: Path) -> str:
    """Returns the CRC-32 of a file in hexadecimal; it is faster than a disk."""
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(2**22):
            checksum = zlib.crc32(block, checksum)
    return f"{checksum:08x}"


def write(path: Path, text: str) -> None:
    """Writes a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    _flush(temporary)
    os.replace(temporary, path)


def _flush(path: Path) -> None:
    """Flushes a file to the disk, or a directory if the system supports it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
