"""Text files: the files that a path names, their faults, and reading utf-8 in bounded pieces.

A path is a file of any name, a directory (all its files with one of the suffixes, such as *.txt and
*.txt.gz, at any depth), or a glob, where ** means any depth. Files that end in .gz or .zst are
decompressed. `config_path` is that of the option that names the files, for faults.
"""

import codecs
import glob
import gzip
import hashlib
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from xformer_kit.data.cache import error_reason
from xformer_kit.registry import ConfigError, Fault, alternatives, config_error, did_you_mean
from xformer_kit.text.user_path import user_path

PIECE_BYTES = 1 << 20  # bytes read at a time
HEAD_BYTES = 1 << 16  # bytes at the start of a file, which are checked before a run
MAX_LINE = 1 << 26  # characters of a line
CHECKED_FILES = 64  # files of a corpus that are checked before a run
SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
COMPRESSED = (".gz", ".zst")


def find(path: str, config_path: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """Returns the files that a path names, sorted, without empty ones. Raises ConfigError if there
    are none.
    """
    name = os.path.expanduser(path)
    if os.path.isdir(name):
        matches = _files_inside(name, config_path, suffixes)
        reason = f"the directory holds no {alternatives(suffixes)} file"
    elif os.path.isfile(name):
        matches, reason = [name], "the file is empty"
    elif os.path.exists(name):
        raise config_error(
            config_path, "must be a file, a directory or a glob", f"'{path}'", "Give a text file."
        )
    elif glob.has_magic(name):
        matches = [*filter(os.path.isfile, glob.glob(name, recursive=True))]
        reason = "no file matches it"
    else:
        raise config_error(
            config_path,
            "no file or directory has this name",
            f"'{path}'",
            f"{_similar_name(name)}Give a text file.",
        )
    not_empty = sorted(map(Path, filter(os.path.getsize, matches)))
    if not not_empty:
        reason = "all its files are empty" if matches and matches != [name] else reason
        raise config_error(
            config_path,
            "must lead to text",
            f"'{path}', but {reason}",
            "Give a file with utf-8 text.",
        )
    return not_empty


def find_one(path: str, config_path: str) -> Path:
    """Returns the file that a path names. Raises ConfigError for none and for several."""
    files = find(path, config_path)
    if len(files) > 1:
        raise config_error(
            config_path,
            "must be one file",
            f"'{path}', which means {len(files)}",
            "Name one of them.",
        )
    return files[0]


def _files_inside(folder: str, config_path: str, suffixes: tuple[str, ...]) -> list[str]:
    """Returns the files with one of the suffixes in a directory, at any depth; hidden folders are
    left out, as in a glob.
    """

    def refuse(error: OSError) -> None:
        raise _unreadable(config_path, error.filename, error)

    paths = []
    for inner, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.join(inner, name) for name in names if name.endswith(suffixes)]
    return [*filter(os.path.isfile, paths)]


def _unreadable(config_path: str, file: object, error: OSError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        rule, fix = "no file has this name", _similar_name(f"{file}") or "Give another path."
        return config_error(config_path, rule, f"'{file}'", fix)
    return config_error(
        config_path,
        "must be readable",
        f"'{file}' ({error_reason(error)})",
        "Change its permissions, or give another path.",
    )


def _similar_name(path: str) -> str:
    """Returns a hint at a similar name in the same directory; "" if there is none."""
    folder, name = os.path.split(path)
    try:
        return did_you_mean(name, os.listdir(folder or "."))
    except (OSError, ValueError):
        return ""


def faults(path: str, config_path: str, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[Fault]:
    """Yields the faults of a path, and of the heads of its first files."""
    try:
        for file in find(path, config_path, suffixes)[:CHECKED_FILES]:
            for _ in read(file, config_path, HEAD_BYTES):
                pass
    except ConfigError as error:
        yield from error.faults


def stamp(files: Iterable[Path]) -> list[Any]:
    """Returns plain values that change when the content of files may: names, sizes, times."""
    return [
        [str(file.absolute()), (status := file.stat()).st_size, status.st_mtime_ns]
        for file in files
    ]


def duplicates(files: Iterable[Path]) -> list[list[Path]]:
    """Returns the groups of files with equal content, which are links or copies. Only files of
    equal size are read.
    """
    by_size, by_hash = defaultdict[int, list[Path]](list), defaultdict[bytes, list[Path]](list)
    for file in files:
        by_size[file.stat().st_size].append(file)
    for file in chain.from_iterable(group for group in by_size.values() if len(group) > 1):
        with open(file, "rb") as source:
            by_hash[hashlib.file_digest(source, "sha256").digest()].append(file)
    return [group for group in by_hash.values() if len(group) > 1]


def repeated_file_faults(paths: Mapping[str, str], config_path: str) -> Iterator[Fault]:
    """Yields the faults of files that the options of several splits name, also under two names.

    paths: option -> path. config_path: of their node.
    """
    seen: dict[tuple[int, int], str] = {}  # (device, inode) -> the first option
    for option, path in paths.items():
        file = user_path(path)
        if not file.is_file():
            continue
        status = file.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), option)
        if first != option:
            link = "" if path == paths[first] else f", another name of '{paths[first]}'"
            yield Fault(
                option,
                f"must be another file than {config_path}.{first}, so that each split has other"
                " examples",
                got=f"'{path}'{link}",
                fix=f"Name another, or take shares of the training data: {config_path}.valid=0.05.",
            )


def size(files: Iterable[Path]) -> int:
    """Returns the approximate bytes of text in files."""
    return sum(file.stat().st_size * (4 if file.suffix in COMPRESSED else 1) for file in files)


def lines(
    file: Path, config_path: str = "data.path", max_bytes: int | None = None
) -> Iterator[str]:
    """Yields the lines of a file without their ends, which are only \\n and \\r\\n; with
    `max_bytes`, the complete lines in its first bytes.
    """
    partial = ""
    for piece in read(file, config_path, max_bytes):
        *complete, partial = (partial + piece).split("\n")
        yield from (line.removesuffix("\r") for line in complete)
        if len(partial) > MAX_LINE:
            raise config_error(
                config_path,
                "must have lines",
                f"'{file}' with one of more than {MAX_LINE:,} characters",
                "Break it up.",
            )
    if partial and max_bytes is None:
        yield partial.removesuffix("\r")


def joined(files: Iterable[Path], config_path: str = "data.path") -> Iterator[str]:
    """Yields files as one text, in pieces as `read` does. A line end is added between two files if
    the first does not end with one.
    """
    last = "\n"
    for file in files:
        if last != "\n":
            yield "\n"
        for text in read(file, config_path):
            last = text[-1]
            yield text


def read(file: Path, config_path: str = "data.path", max_bytes: int | None = None) -> Iterator[str]:
    """Yields the text of a file in pieces of about 1 MiB; with `max_bytes`, that of its first
    bytes.

    A byte-order mark at the start is left out. Raises ConfigError with the position of the first
    byte that is NUL or not utf-8.
    """
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        for data in chain(
            _pieces(file, config_path, min(PIECE_BYTES, max_bytes or PIECE_BYTES)), [b""]
        ):
            piece = data if max_bytes is None else data[: max_bytes - position]
            if b"\0" in piece:
                raise _binary(file, config_path, 0, position + piece.index(b"\0"))
            # minus the bytes of a character that began in the previous piece
            start = position - len(decoder.getstate()[0])
            try:
                text = decoder.decode(piece, final=not data)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise _binary(file, config_path, byte, start + error.start) from None
            if position == 0:
                text = text.removeprefix("\ufeff")
            if text:
                yield text
            position += len(piece)
            if position == max_bytes:
                return
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file, config_path, "gzip", error) from None
    except OSError as error:
        raise _unreadable(config_path, file, error) from None


def _pieces(file: Path, config_path: str, size: int) -> Iterator[bytes]:
    """Yields the decompressed content of a file in pieces of about `size` bytes."""
    if file.suffix == ".zst":
        yield from _zstandard(file, config_path, size // 4 + 1)
        return
    with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as source:
        while data := source.read(size):
            yield data


def _zstandard(file: Path, config_path: str, size: int) -> Iterator[bytes]:
    """Yields the decompressed content of zstandard frames, from `size` compressed bytes at a time.
    Raises ConfigError for a file that is not zstandard or is cut off.
    """
    try:
        import zstandard
    except ImportError:
        raise config_error(
            config_path,
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
                    raise _damaged(file, config_path, "zstandard", error) from None
                data, frame = frame.unused_data, None if frame.eof else frame
    if frame:
        raise _damaged(file, config_path, "zstandard", "it ends within a frame")


def _damaged(file: Path, config_path: str, kind: str, reason: object) -> ConfigError:
    """Returns the error of a compressed file that is damaged or cut off."""
    return config_error(
        config_path, f"must be a whole {kind} file", f"'{file}' ({reason})", "Pack it again."
    )


def _binary(file: Path, config_path: str, byte: int, position: int) -> ConfigError:
    """Returns the error of a file with a byte that is NUL or not utf-8."""
    description = "a NUL byte" if byte == 0 else f"byte 0x{byte:02X}"
    return config_error(
        config_path,
        "must be utf-8 text",
        f"'{file}' with {description} at position {position:,}",
        "Convert the file, for instance with iconv, or leave it out.",
    )
