"""Which text files does a path mean, and what is wrong with them? Reading is utf-8, in pieces of bounded size.

A path is a file of any name, a directory (all its *.txt and *.txt.gz, at any depth), or a glob, where ** means any
depth. A name that ends in .gz is unpacked.
"""

import codecs
import glob
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from xformer_kit.registry import ConfigError, nearest

PIECE = 1 << 20  # bytes read at a time
HEAD = 1 << 16  # bytes of a file that are looked at before a run
LOOKED_AT = 64  # files of a large corpus that are looked at before a run
ALLOW = "Change its permissions, or give another path."
SUFFIXES = (".txt", ".txt.gz")


def find(path: str) -> list[Path]:
    """The files that a path means, sorted, without empty ones. Raises ConfigError "data.path: ..." for none."""
    where = os.path.expanduser(path)
    try:
        exists = bool(path) and os.path.exists(where)
    except ValueError:  # a NUL in the name
        exists = False
    if not exists:
        if glob.has_magic(where):
            found = [file for file in glob.glob(where, recursive=True) if os.path.isfile(file)]
            return _not_empty(path, found, "no file matches it")
        hint = _neighbour(where)
        raise ConfigError(f"data.path: no file or directory has this name; got '{path}'.{hint} Give a text file.")
    if os.path.isdir(where):
        return _not_empty(path, _inside(where), f"the directory holds no {' or '.join(SUFFIXES)} file")
    if not os.path.isfile(where):
        raise ConfigError(f"data.path: must be a file, a directory or a glob; got '{path}'. Give a text file.")
    return _not_empty(path, [where], "the file is empty")


def _not_empty(path: str, files: list[str], otherwise: str) -> list[Path]:
    """The files that hold something; a path that finds nothing, or only empty files, is a fault."""
    full = sorted(Path(f) for f in files if os.path.getsize(f))
    if not full:
        reason = otherwise if not files or files == [os.path.expanduser(path)] else "all its files are empty"
        raise ConfigError(f"data.path: must lead to text; got '{path}', but {reason}. Give a file with utf-8 text.")
    return full


def _inside(folder: str) -> list[str]:
    """The text files in a directory, at any depth; hidden folders are left out, as by a glob."""

    def refuse(error: OSError) -> None:
        raise ConfigError(f"data.path: must be readable; got '{error.filename}' ({_reason(error)}). {ALLOW}")

    found = []
    for at, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(at, name) for name in names if name.endswith(SUFFIXES)]
    return [file for file in found if os.path.isfile(file)]


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _neighbour(where: str) -> str:
    """A hint at the name beside the one that is missing."""
    folder, name = os.path.split(where)
    try:
        return nearest(name, os.listdir(folder or "."))
    except (OSError, ValueError):
        return ""


def faults(path: str) -> Iterator[str]:
    """Sentences "data.path: ..." on what can be seen at once: the names, and the heads of the first files."""
    try:
        for file in find(path)[:LOOKED_AT]:
            for _ in read(file, at_most=HEAD):
                pass
    except ConfigError as error:
        yield from (fault.removeprefix("data.") for fault in error.faults)  # a check's caller puts the group before it


def read(file: Path, at_most: int | None = None) -> Iterator[str]:
    """The text of a file in pieces of about 1 MiB; of its first `at_most` bytes only, where that is given.

    A byte-order mark at the start is left out. Raises ConfigError "data.path: ..." with the position of the first byte
    that is NUL or no utf-8.
    """
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        with _open(file) as source:
            while want := PIECE if at_most is None else min(PIECE, at_most - position):
                data = source.read(want)
                if b"\0" in data:
                    raise _binary(file, 0, position + data.index(b"\0"))
                held = len(decoder.getstate()[0])  # bytes of a character that began in the piece before
                try:
                    text = decoder.decode(data, final=len(data) < want)
                except UnicodeDecodeError as error:
                    raise _binary(file, error.object[error.start], position - held + error.start) from None
                if position == 0:
                    text = text.removeprefix("\ufeff")
                if text:
                    yield text
                if len(data) < want:
                    return
                position += len(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigError(f"data.path: must be a whole gzip file; got '{file}' ({error}). Pack it again.") from None
    except OSError as error:
        raise ConfigError(f"data.path: must be readable; got '{file}' ({_reason(error)}). {ALLOW}") from None


def _open(file: Path) -> BinaryIO:
    return gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb")  # type: ignore[return-value]


def _binary(file: Path, byte: int, position: int) -> ConfigError:
    what = "a NUL byte" if byte == 0 else f"byte 0x{byte:02X}"
    return ConfigError(
        f"data.path: must be utf-8 text; got '{file}' with {what} at position {position:,}. "
        "Convert the file, for instance with iconv, or leave it out."
    )
