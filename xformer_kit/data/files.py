"""Text files: the files that a path means, their faults, and reading utf-8 in bounded pieces.

A path is a file of any name, a directory (all its files with one of the suffixes, such as *.txt and
*.txt.gz, at any depth), or a glob, where ** means any depth. A name that ends in .gz or .zst is
unpacked. `option` is the option of a corpus that holds the path: messages begin with
"data.<option>".
"""

import codecs
import glob
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from xformer_kit.registry import ConfigError, Fault, listed, nearest

PIECE = 1 << 20  # bytes read at a time
HEAD = 1 << 16  # bytes of a file that are read before a run
LONGEST = 1 << 26  # characters of a line
LOOKED_AT = 64  # files of a large corpus that are read before a run
ALLOW = "Change its permissions, or give another path."
SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
PACKED = (".gz", ".zst")


def find(path: str, option: str = "path", suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files that a path means, sorted, without empty ones. Raises ConfigError for none."""
    where = os.path.expanduser(path)
    try:
        exists = bool(path) and os.path.exists(where)
    except ValueError:  # a NUL in the name
        exists = False
    if not exists and not glob.has_magic(where):
        hint = _neighbour(where)
        raise ConfigError(
            Fault(
                f"data.{option}",
                "no file or directory has this name",
                got=f"'{path}'",
                fix=f"{hint}Give a text file.",
            )
        )
    if not exists:
        files = [file for file in glob.glob(where, recursive=True) if os.path.isfile(file)]
        reason = "no file matches it"
    elif os.path.isdir(where):
        files = _inside(where, option, suffixes)
        reason = f"the directory holds no {listed(suffixes)} file"
    elif os.path.isfile(where):
        files, reason = [where], "the file is empty"
    else:
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be a file, a directory or a glob",
                got=f"'{path}'",
                fix="Give a text file.",
            )
        )
    full = sorted(Path(file) for file in files if os.path.getsize(file))
    if not full:
        if files and files != [where]:
            reason = "all its files are empty"
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must lead to text",
                got=f"'{path}', but {reason}",
                fix="Give a file with utf-8 text.",
            )
        )
    return full


def one(path: str, option: str) -> Path:
    """The one file that a path means. Raises ConfigError for none and for several."""
    found = find(path, option)
    if len(found) > 1:
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be one file",
                got=f"'{path}', which means {len(found)}",
                fix="Name one of them.",
            )
        )
    return found[0]


def _inside(folder: str, option: str, suffixes: tuple[str, ...]) -> list[str]:
    """The files with one of the suffixes in a directory, at any depth; hidden folders are left out,
    as by a glob.
    """

    def refuse(error: OSError) -> None:
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be readable",
                got=f"'{error.filename}' ({_reason(error)})",
                fix=ALLOW,
            )
        )

    found = []
    for at, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(at, name) for name in names if name.endswith(suffixes)]
    return [file for file in found if os.path.isfile(file)]


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _neighbour(where: str) -> str:
    """A hint at the name beside the one that is missing."""
    folder, name = os.path.split(where)
    try:
        return nearest(name, os.listdir(folder or "."), 0.8)
    except (OSError, ValueError):
        return ""


def faults(
    path: str, option: str = "path", suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[Fault]:
    """Faults of the names, and of the heads of the first files, with paths inside `data`."""
    try:
        for file in find(path, option, suffixes)[:LOOKED_AT]:
            for _ in read(file, HEAD, option):
                pass
    except ConfigError as error:
        yield from option_faults(error)


def option_faults(error: ConfigError) -> Iterator[Fault]:
    """Its faults as a corpus' `check` yields them, with paths inside `data`."""
    return (replace(fault, path=fault.path.removeprefix("data.")) for fault in error.faults)


def stamp(files: Iterable[Path]) -> list[Any]:
    """Plain values that differ whenever the content of files may differ: names, sizes, times."""
    stats = [(file, file.stat()) for file in files]
    return [[str(file.absolute()), s.st_size, s.st_mtime_ns] for file, s in stats]


def equal(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """File -> others with the same bytes: links, and copies. Only files of the same size are
    read.
    """
    sizes: dict[int, list[Path]] = {}
    for file in files:
        sizes.setdefault(file.stat().st_size, []).append(file)
    found: dict[bytes, list[Path]] = {}
    for some in sizes.values():
        for file in some if len(some) > 1 else ():
            with open(file, "rb") as source:
                found.setdefault(hashlib.file_digest(source, "sha256").digest(), []).append(file)
    return {
        file: [other for other in some if other != file]
        for some in found.values()
        if len(some) > 1
        for file in some
    }


def named_twice(named: Mapping[str, str | None]) -> Iterator[Fault]:
    """Faults of a file that the options of several splits name, also under two names. None: not
    given.
    """
    there: list[tuple[str, str]] = []
    for option, path in named.items():
        if path is None or not os.path.isfile(os.path.expanduser(path)):
            continue
        for first, other in there:
            if os.path.samefile(os.path.expanduser(path), os.path.expanduser(other)):
                link = "" if path == other else f", another name of '{other}'"
                yield Fault(
                    option,
                    f"must be another file than data.{first}, so that each split has other"
                    " examples",
                    got=f"'{path}'{link}",
                    fix="Name another, or take shares of the training data: data.valid=0.05.",
                )
                break
        there.append((option, path))


def size(files: Iterable[Path]) -> int:
    """Approximate bytes of text in files."""
    return sum(file.stat().st_size * (4 if file.suffix in PACKED else 1) for file in files)


def lines(file: Path, option: str = "path", at_most: int | None = None) -> Iterator[str]:
    """The lines of a file without their ends, which are \\n or \\r\\n: no other character ends a
    line. Of its first `at_most` bytes the whole lines, if that is given.
    """
    held = ""
    for piece in read(file, at_most, option):
        *whole, held = (held + piece).split("\n")
        yield from (line.removesuffix("\r") for line in whole)
        if len(held) > LONGEST:
            raise ConfigError(
                Fault(
                    f"data.{option}",
                    "must have lines",
                    got=f"'{file}' with one of more than {LONGEST:,} characters",
                    fix="Break it up.",
                )
            )
    if held and at_most is None:
        yield held.removesuffix("\r")


def read(file: Path, at_most: int | None = None, option: str = "path") -> Iterator[str]:
    """The text of a file in pieces of about 1 MiB; of its first `at_most` bytes, if that is given.

    A byte-order mark at the start is left out. Raises ConfigError with the position of the first
    byte that is NUL or no utf-8.
    """
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        with _open(file, option) as source:
            while want := PIECE if at_most is None else min(PIECE, at_most - position):
                data = source.read(want)
                if b"\0" in data:
                    raise _binary(file, option, 0, position + data.index(b"\0"))
                # bytes of a character that began in the piece before
                start = position - len(decoder.getstate()[0])
                try:
                    text = decoder.decode(data, final=len(data) < want)
                except UnicodeDecodeError as error:
                    byte = error.object[error.start]
                    raise _binary(file, option, byte, start + error.start) from None
                if position == 0:
                    text = text.removeprefix("\ufeff")
                if text:
                    yield text
                if len(data) < want:
                    return
                position += len(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be a whole gzip file",
                got=f"'{file}' ({error})",
                fix="Pack it again.",
            )
        ) from None
    except OSError as error:
        raise ConfigError(
            Fault(
                f"data.{option}", "must be readable", got=f"'{file}' ({_reason(error)})", fix=ALLOW
            )
        ) from None


def _open(file: Path, option: str) -> BinaryIO:
    if file.suffix == ".zst":
        return _Zstandard(file, option)  # type: ignore[return-value]
    return gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb")  # type: ignore[return-value]


class _Zstandard:
    """A file of zstandard frames, unpacked as it is read. Raises ConfigError if it is another file
    or is cut off.
    """

    def __init__(self, file: Path, option: str):
        try:
            import zstandard
        except ImportError:
            raise ConfigError(
                Fault(
                    f"data.{option}",
                    f"needs the package zstandard to read '{file}'",
                    got="none",
                    fix="Use pip install zstandard, or unpack it.",
                )
            ) from None
        self.file = file
        self.option = option
        self.error = zstandard.ZstdError
        self.packed = open(file, "rb")  # noqa: SIM115, closed on exit
        self.decoder = zstandard.ZstdDecompressor()
        self.whole = True
        self.ready = b""
        self.frame = self.decoder.decompressobj()

    def __enter__(self) -> "_Zstandard":
        return self

    def __exit__(self, *error: object) -> None:
        self.packed.close()

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        while len(self.ready) < size and (data := self.packed.read(min(size, PIECE) // 4 + 1)):
            try:
                self._unpack(data)
            except self.error as error:
                raise self._broken(str(error)) from None
        if len(self.ready) < size and not self.whole:
            raise self._broken("it ends within a frame")
        found, self.ready = self.ready[:size], self.ready[size:]
        return found

    def _unpack(self, data: bytes) -> None:
        while data:
            self.ready += self.frame.decompress(data)
            self.whole, data = self.frame.eof, self.frame.unused_data
            if self.whole:
                self.frame = self.decoder.decompressobj()

    def _broken(self, reason: str) -> ConfigError:
        return ConfigError(
            Fault(
                f"data.{self.option}",
                "must be a whole zstandard file",
                got=f"'{self.file}' ({reason})",
                fix="Pack it again.",
            )
        )


def _binary(file: Path, option: str, byte: int, position: int) -> ConfigError:
    what = "a NUL byte" if byte == 0 else f"byte 0x{byte:02X}"
    return ConfigError(
        Fault(
            f"data.{option}",
            "must be utf-8 text",
            got=f"'{file}' with {what} at position {position:,}",
            fix="Convert the file, for instance with iconv, or leave it out.",
        )
    )
