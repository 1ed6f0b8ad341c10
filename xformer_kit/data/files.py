"""Text files: the files that a path means, their faults, and reading utf-8 in bounded pieces.

A path is a file of any name, a directory (all its files with one of the suffixes, such as *.txt and
*.txt.gz, at any depth), or a glob, where ** means any depth. A name that ends in .gz or .zst is
unpacked. `at` is the config path of the option that holds the path: where faults are.
"""

import codecs
import glob
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from xformer_kit.data.cache import reason_of
from xformer_kit.data.refused import refused
from xformer_kit.registry import ConfigError, Fault, listed, nearest

PIECE = 1 << 20  # bytes read at a time
HEAD = 1 << 16  # bytes of a file that are read before a run
LONGEST = 1 << 26  # characters of a line
LOOKED_AT = 64  # files of a large corpus that are read before a run
ALLOW = "Change its permissions, or give another path."
SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
PACKED = (".gz", ".zst")


def find(path: str, at: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files that a path means, sorted, without empty ones. Raises ConfigError for none."""
    where = os.path.expanduser(path)
    if os.path.isdir(where):
        found = _inside(where, at, suffixes)
        reason = f"the directory holds no {listed(suffixes)} file"
    elif os.path.isfile(where):
        found, reason = [where], "the file is empty"
    elif os.path.exists(where):
        raise refused(at, "must be a file, a directory or a glob", f"'{path}'", "Give a text file.")
    elif glob.has_magic(where):
        found = [file for file in glob.glob(where, recursive=True) if os.path.isfile(file)]
        reason = "no file matches it"
    else:
        raise refused(
            at,
            "no file or directory has this name",
            f"'{path}'",
            f"{_neighbour(where)}Give a text file.",
        )
    full = sorted(Path(file) for file in found if os.path.getsize(file))
    if not full:
        reason = "all its files are empty" if found and found != [where] else reason
        raise refused(
            at, "must lead to text", f"'{path}', but {reason}", "Give a file with utf-8 text."
        )
    return full


def one(path: str, at: str) -> Path:
    """The one file that a path means. Raises ConfigError for none and for several."""
    found = find(path, at)
    if len(found) > 1:
        raise refused(
            at, "must be one file", f"'{path}', which means {len(found)}", "Name one of them."
        )
    return found[0]


def _inside(folder: str, at: str, suffixes: tuple[str, ...]) -> list[str]:
    """The files with one of the suffixes in a directory, at any depth; hidden folders are left out,
    as by a glob.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(at, error.filename, error)

    found = []
    for inner, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(inner, name) for name in names if name.endswith(suffixes)]
    return [file for file in found if os.path.isfile(file)]


def _unreadable(at: str, file: object, error: OSError) -> ConfigError:
    return refused(at, "must be readable", f"'{file}' ({reason_of(error)})", ALLOW)


def _neighbour(where: str) -> str:
    """A hint at the name beside the one that is missing."""
    folder, name = os.path.split(where)
    try:
        return nearest(name, os.listdir(folder or "."), 0.8)
    except (OSError, ValueError):
        return ""


def faults(path: str, at: str, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[Fault]:
    """Faults of the names, and of the heads of the first files."""
    try:
        for file in find(path, at, suffixes)[:LOOKED_AT]:
            for _ in read(file, at, HEAD):
                pass
    except ConfigError as error:
        yield from error.faults


def stamp(files: Iterable[Path]) -> list[Any]:
    """Plain values that differ whenever the content of files may differ: names, sizes, times."""
    stats = [(file, file.stat()) for file in files]
    return [[str(file.absolute()), s.st_size, s.st_mtime_ns] for file, s in stats]


def equal(files: Iterable[Path]) -> list[list[Path]]:
    """Files with the same bytes, which are links or copies: those of each content that several
    have. Only files of the same size are read.
    """
    sizes: dict[int, list[Path]] = {}
    for file in files:
        sizes.setdefault(file.stat().st_size, []).append(file)
    found: dict[bytes, list[Path]] = {}
    for file in (file for some in sizes.values() if len(some) > 1 for file in some):
        with open(file, "rb") as source:
            found.setdefault(hashlib.file_digest(source, "sha256").digest(), []).append(file)
    return [some for some in found.values() if len(some) > 1]


def named_twice(named: Mapping[str, str], place: str) -> Iterator[Fault]:
    """Faults of a file that the options of several splits name, also under two names; `place`: the
    config path of their node.
    """
    seen: dict[tuple[int, int], tuple[str, str]] = {}  # a file -> the first that names it
    for option, path in named.items():
        where = os.path.expanduser(path)
        if not os.path.isfile(where):
            continue
        status = os.stat(where)
        first, other = seen.setdefault((status.st_dev, status.st_ino), (option, path))
        if first != option:
            link = "" if path == other else f", another name of '{other}'"
            yield Fault(
                option,
                f"must be another file than {place}.{first}, so that each split has other examples",
                got=f"'{path}'{link}",
                fix=f"Name another, or take shares of the training data: {place}.valid=0.05.",
            )


def size(files: Iterable[Path]) -> int:
    """Approximate bytes of text in files."""
    return sum(file.stat().st_size * (4 if file.suffix in PACKED else 1) for file in files)


def lines(file: Path, at: str = "data.path", at_most: int | None = None) -> Iterator[str]:
    """The lines of a file without their ends, which are \\n or \\r\\n: no other character ends a
    line. Of its first `at_most` bytes the whole lines, if that is given.
    """
    held = ""
    for piece in read(file, at, at_most):
        *whole, held = (held + piece).split("\n")
        yield from (line.removesuffix("\r") for line in whole)
        if len(held) > LONGEST:
            raise refused(
                at,
                "must have lines",
                f"'{file}' with one of more than {LONGEST:,} characters",
                "Break it up.",
            )
    if held and at_most is None:
        yield held.removesuffix("\r")


def read(file: Path, at: str = "data.path", at_most: int | None = None) -> Iterator[str]:
    """The text of a file in pieces of about 1 MiB; of its first `at_most` bytes, if that is given.

    A byte-order mark at the start is left out. Raises ConfigError with the position of the first
    byte that is NUL or no utf-8.
    """
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        for data in chain(_pieces(file, at, min(PIECE, at_most or PIECE)), [b""]):
            piece = data if at_most is None else data[: at_most - position]
            if b"\0" in piece:
                raise _binary(file, at, 0, position + piece.index(b"\0"))
            # bytes of a character that began in the piece before
            start = position - len(decoder.getstate()[0])
            try:
                text = decoder.decode(piece, final=not data)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise _binary(file, at, byte, start + error.start) from None
            if position == 0:
                text = text.removeprefix("\ufeff")
            if text:
                yield text
            position += len(piece)
            if position == at_most:
                return
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file, at, "gzip", error) from None
    except OSError as error:
        raise _unreadable(at, file, error) from None


def _pieces(file: Path, at: str, size: int) -> Iterator[bytes]:
    """The content of a file, unpacked, in pieces of about `size` bytes."""
    if file.suffix == ".zst":
        yield from _zstandard(file, at, size // 4 + 1)
        return
    with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as source:
        while data := source.read(size):
            yield data


def _zstandard(file: Path, at: str, size: int) -> Iterator[bytes]:
    """The content of frames of zstandard, `size` packed bytes at a time. Raises ConfigError for
    another file and for one that is cut off.
    """
    try:
        import zstandard
    except ImportError:
        raise refused(
            at,
            f"needs the package zstandard to read '{file}'",
            "none",
            "Use pip install zstandard, or unpack it.",
        ) from None
    decoder = zstandard.ZstdDecompressor()
    frame = None
    with open(file, "rb") as packed:
        while data := packed.read(size):
            while data:
                frame = frame or decoder.decompressobj()
                try:
                    if piece := frame.decompress(data):
                        yield piece
                except zstandard.ZstdError as error:
                    raise _damaged(file, at, "zstandard", error) from None
                data, frame = frame.unused_data, None if frame.eof else frame
    if frame:
        raise _damaged(file, at, "zstandard", "it ends within a frame")


def _damaged(file: Path, at: str, kind: str, reason: object) -> ConfigError:
    return refused(at, f"must be a whole {kind} file", f"'{file}' ({reason})", "Pack it again.")


def _binary(file: Path, at: str, byte: int, position: int) -> ConfigError:
    what = "a NUL byte" if byte == 0 else f"byte 0x{byte:02X}"
    return refused(
        at,
        "must be utf-8 text",
        f"'{file}' with {what} at position {position:,}",
        "Convert the file, for instance with iconv, or leave it out.",
    )
