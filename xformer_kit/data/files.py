"""Text files: the files that a path names, their faults, and reading utf-8 in bounded pieces.

A path is a file of any name, a directory (all its files with one of the suffixes, such as *.txt and
*.txt.gz, at any depth), or a glob, where ** means any depth. Files that end in .gz or .zst are
decompressed. `at` is the config path of the option with the path, for faults.
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

from xformer_kit.data.cache import error_reason
from xformer_kit.data.config_error import config_error
from xformer_kit.registry import ConfigError, Fault, alternatives, did_you_mean

PIECE = 1 << 20  # bytes read at a time
HEAD = 1 << 16  # bytes of a file that are checked before a run
MAX_LINE = 1 << 26  # characters of a line
CHECKED_FILES = 64  # files of a corpus that are checked before a run
ALLOW = "Change its permissions, or give another path."
SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
PACKED = (".gz", ".zst")


def find(path: str, at: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """Returns the files that a path names, sorted, without empty ones. Raises ConfigError if there
    are none.
    """
    where = os.path.expanduser(path)
    if os.path.isdir(where):
        found = _files_inside(where, at, suffixes)
        reason = f"the directory holds no {alternatives(suffixes)} file"
    elif os.path.isfile(where):
        found, reason = [where], "the file is empty"
    elif os.path.exists(where):
        raise config_error(
            at, "must be a file, a directory or a glob", f"'{path}'", "Give a text file."
        )
    elif glob.has_magic(where):
        found = [file for file in glob.glob(where, recursive=True) if os.path.isfile(file)]
        reason = "no file matches it"
    else:
        raise config_error(
            at,
            "no file or directory has this name",
            f"'{path}'",
            f"{_similar_name(where)}Give a text file.",
        )
    full = sorted(Path(file) for file in found if os.path.getsize(file))
    if not full:
        reason = "all its files are empty" if found and found != [where] else reason
        raise config_error(
            at, "must lead to text", f"'{path}', but {reason}", "Give a file with utf-8 text."
        )
    return full


def find_one(path: str, at: str) -> Path:
    """Returns the file that a path names. Raises ConfigError for none and for several."""
    found = find(path, at)
    if len(found) > 1:
        raise config_error(
            at, "must be one file", f"'{path}', which means {len(found)}", "Name one of them."
        )
    return found[0]


def _files_inside(folder: str, at: str, suffixes: tuple[str, ...]) -> list[str]:
    """Returns the files with one of the suffixes in a directory, at any depth; hidden folders are
    left out, as in a glob.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(at, error.filename, error)

    found = []
    for inner, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(inner, name) for name in names if name.endswith(suffixes)]
    return [file for file in found if os.path.isfile(file)]


def _unreadable(at: str, file: object, error: OSError) -> ConfigError:
    return config_error(at, "must be readable", f"'{file}' ({error_reason(error)})", ALLOW)


def _similar_name(where: str) -> str:
    """Returns a hint at a similar name in the same directory."""
    folder, name = os.path.split(where)
    try:
        return did_you_mean(name, os.listdir(folder or "."), 0.8)
    except (OSError, ValueError):
        return ""


def faults(path: str, at: str, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[Fault]:
    """Yields the faults of a path, and of the heads of its first files."""
    try:
        for file in find(path, at, suffixes)[:CHECKED_FILES]:
            for _ in read(file, at, HEAD):
                pass
    except ConfigError as error:
        yield from error.faults


def stamp(files: Iterable[Path]) -> list[Any]:
    """Returns plain values that change when the content of files may: names, sizes, times."""
    stats = [(file, file.stat()) for file in files]
    return [[str(file.absolute()), s.st_size, s.st_mtime_ns] for file, s in stats]


def duplicates(files: Iterable[Path]) -> list[list[Path]]:
    """Returns the groups of files with equal content, which are links or copies. Only files of
    equal size are read.
    """
    sizes: dict[int, list[Path]] = {}
    for file in files:
        sizes.setdefault(file.stat().st_size, []).append(file)
    found: dict[bytes, list[Path]] = {}
    for file in (file for group in sizes.values() if len(group) > 1 for file in group):
        with open(file, "rb") as source:
            found.setdefault(hashlib.file_digest(source, "sha256").digest(), []).append(file)
    return [group for group in found.values() if len(group) > 1]


def repeated_file_faults(paths: Mapping[str, str], config_path: str) -> Iterator[Fault]:
    """Yields the faults of files that the options of several splits name, also under two names.

    paths: option -> path. config_path: of their node.
    """
    seen: dict[tuple[int, int], tuple[str, str]] = {}  # (device, inode) -> the first (option, path)
    for option, path in paths.items():
        where = os.path.expanduser(path)
        if not os.path.isfile(where):
            continue
        status = os.stat(where)
        first, other = seen.setdefault((status.st_dev, status.st_ino), (option, path))
        if first != option:
            link = "" if path == other else f", another name of '{other}'"
            yield Fault(
                option,
                f"must be another file than {config_path}.{first}, so that each split has other"
                " examples",
                got=f"'{path}'{link}",
                fix=f"Name another, or take shares of the training data: {config_path}.valid=0.05.",
            )


def size(files: Iterable[Path]) -> int:
    """Returns the approximate bytes of text in files."""
    return sum(file.stat().st_size * (4 if file.suffix in PACKED else 1) for file in files)


def lines(file: Path, at: str = "data.path", max_bytes: int | None = None) -> Iterator[str]:
    """Yields the lines of a file without their ends, which are only \\n and \\r\\n; with
    `max_bytes`, the complete lines in its first bytes.
    """
    partial = ""
    for piece in read(file, at, max_bytes):
        *complete, partial = (partial + piece).split("\n")
        yield from (line.removesuffix("\r") for line in complete)
        if len(partial) > MAX_LINE:
            raise config_error(
                at,
                "must have lines",
                f"'{file}' with one of more than {MAX_LINE:,} characters",
                "Break it up.",
            )
    if partial and max_bytes is None:
        yield partial.removesuffix("\r")


def read(file: Path, at: str = "data.path", max_bytes: int | None = None) -> Iterator[str]:
    """Yields the text of a file in pieces of about 1 MiB; with `max_bytes`, that of its first
    bytes.

    A byte-order mark at the start is left out. Raises ConfigError with the position of the first
    byte that is NUL or not utf-8.
    """
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        for data in chain(_pieces(file, at, min(PIECE, max_bytes or PIECE)), [b""]):
            piece = data if max_bytes is None else data[: max_bytes - position]
            if b"\0" in piece:
                raise _binary(file, at, 0, position + piece.index(b"\0"))
            # minus the bytes of a character that began in the previous piece
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
            if position == max_bytes:
                return
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file, at, "gzip", error) from None
    except OSError as error:
        raise _unreadable(at, file, error) from None


def _pieces(file: Path, at: str, size: int) -> Iterator[bytes]:
    """Yields the decompressed content of a file in pieces of about `size` bytes."""
    if file.suffix == ".zst":
        yield from _zstandard(file, at, size // 4 + 1)
        return
    with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as source:
        while data := source.read(size):
            yield data


def _zstandard(file: Path, at: str, size: int) -> Iterator[bytes]:
    """Yields the decompressed content of zstandard frames, from `size` compressed bytes at a time.
    Raises ConfigError for a file that is not zstandard or is cut off.
    """
    try:
        import zstandard
    except ImportError:
        raise config_error(
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
    return config_error(
        at, f"must be a whole {kind} file", f"'{file}' ({reason})", "Pack it again."
    )


def _binary(file: Path, at: str, byte: int, position: int) -> ConfigError:
    found = "a NUL byte" if byte == 0 else f"byte 0x{byte:02X}"
    return config_error(
        at,
        "must be utf-8 text",
        f"'{file}' with {found} at position {position:,}",
        "Convert the file, for instance with iconv, or leave it out.",
    )
