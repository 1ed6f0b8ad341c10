"""Text files: the files that a path names, their faults, and reading utf-8 in bounded pieces.

A path is a file of any name, a directory (all its files with one of the suffixes, such as *.txt and
*.txt.gz, at any depth), or a glob, where ** means any depth. Files that end in .gz or .zst are
decompressed. `config_path` is that of the option that names the files, for faults.
"""

import codecs
import glob
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xformer_kit.registry import ConfigError, Fault, alternatives, config_error, did_you_mean
from xformer_kit.registry.messages import one_line
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
    elif os.path.isfile(name):
        matches = [name]
    elif glob.has_magic(name):
        matches = [*filter(os.path.isfile, glob.glob(name, recursive=True))]
    else:
        raise config_error(
            config_path,
            "no file or directory has this name",
            f"'{path}'",
            f"{_similar_name(name)}Give a text file.",
        )
    not_empty = sorted(map(Path, filter(os.path.getsize, matches)))
    if not not_empty:
        raise config_error(
            config_path,
            "must lead to files that are not empty",
            f"'{path}'",
            f"Give a file with text, in a directory {alternatives(suffixes)}.",
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
        raise error

    paths = []
    with _read_errors(config_path, folder):
        for inner, folders, names in os.walk(folder, onerror=refuse):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths += [os.path.join(inner, name) for name in names if name.endswith(suffixes)]
    return [*filter(os.path.isfile, paths)]


@contextmanager
def _read_errors(config_path: str, file: object) -> Iterator[None]:
    """Raises ConfigError for a file or a directory that cannot be read or unpacked."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        hint = _similar_name(f"{file}") if isinstance(error, FileNotFoundError) else ""
        raise config_error(
            config_path,
            "must be readable",
            f"'{getattr(error, 'filename', None) or file}' ({one_line(error)})",
            f"{hint}Mend it, or give another path.",
        ) from None


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
            yield Fault(
                option,
                f"must be another file than {config_path}.{first}, so that each split has other"
                " examples",
                got=f"'{path}'",
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
    decoder, position, data = codecs.getincrementaldecoder("utf-8")(), 0, None
    with _read_errors(config_path, file), _open(file, config_path) as source:
        while data != b"" and position != max_bytes:
            rest = PIECE_BYTES if max_bytes is None else max_bytes - position
            data = source.read(min(PIECE_BYTES, rest))
            if b"\0" in data:
                raise _binary(file, config_path, 0, position + data.index(b"\0"))
            # minus the bytes of a character that began in the previous piece
            start = position - len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise _binary(file, config_path, byte, start + error.start) from None
            if position == 0:
                text = text.removeprefix("\ufeff")
            if text:
                yield text
            position += len(data)


def _open(file: Path, config_path: str) -> Any:
    """Opens a file for its content, decompressed."""
    if file.suffix != ".zst":
        return gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb")
    try:
        import pyarrow
    except ImportError:
        raise config_error(
            config_path,
            f"needs the package pyarrow to read '{file}'",
            fix="Use pip install 'xformer_kit[data]', or unpack it.",
        ) from None
    return pyarrow.input_stream(str(file), compression="zstd")


def _binary(file: Path, config_path: str, byte: int, position: int) -> ConfigError:
    """Returns the error of a file with a byte that is NUL or not utf-8."""
    return config_error(
        config_path,
        "must be utf-8 text",
        f"'{file}' with byte 0x{byte:02X} at position {position:,}",
        "Convert the file, for instance with iconv, or leave it out.",
    )
