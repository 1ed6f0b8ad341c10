"""Corpora whose entries have named fields: lines of JSON, parquet tables.

Two fields are a pair; one field is a text. A dot leads into a field that has fields itself:
`translation.en`.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.divided import Divided, DividedFiles
from xformer_kit.registry import ConfigError, Fault, Options, choices
from xformer_kit.registry.messages import one_line

AT_ONCE = 1024  # entries that are read at once
Entry = tuple[Any, str]  # a mapping of fields, and its place, for messages


class Records(Divided):
    """Base of the corpora of records. A corpus defines `entries`.

    With the option `text` they are texts, each followed by a blank line, else pairs of the fields
    `source` and `target`. Splits are cut by a hash of the text or of the source.
    """

    documents = True
    fields: tuple[tuple[str, str], ...]  # (option, field) each

    def choose(self, source: str, target: str, text: str | None) -> None:
        self.form = "pairs" if text is None else "text"
        self.fields = self.chosen = (
            (("source", source), ("target", target)) if text is None else (("text", text),)
        )

    @classmethod
    def forms(cls) -> dict[str, str]:
        return {"pairs": "", "text": " data.text=FIELD"}

    @classmethod
    def form_of(cls, options: Mapping[str, Any]) -> str:
        return "pairs" if options.get("text") is None else "text"

    def entries(self, what: Any) -> Iterator[Entry]:
        """The entries of what is given for a split, with at least those of `fields` that exist."""
        raise NotImplementedError

    def columns(self, known: list[str]) -> list[str]:
        """The columns of a table that hold the fields; if one is missing all, for a message to list
        them.
        """
        names = [name if name in known else name.partition(".")[0] for _, name in self.fields]
        return list(dict.fromkeys(names)) if set(names) <= set(known) else known

    def rows(self, what: Any) -> Iterator[tuple[str, str]]:
        for entry, where in self.entries(what):
            # one text, or a source and a target
            yield tuple(_field(entry, option, name, where) for option, name in self.fields)  # type: ignore[misc]

    def texts(self, split: str, side: str | None = None) -> Iterator[str]:
        if self.form == "pairs":
            yield from super().texts(split, side)
            return
        for (text,) in self.pairs(split):  # type: ignore[misc]
            if text.strip():
                yield text + "\n\n"


def field_faults(options: Options) -> Iterator[Fault]:
    """Faults of `source`, `target` and `text`."""
    if options.text is not None and (options.source, options.target) != ("source", "target"):
        yield Fault(
            "text",
            "is the field of a text, and data.source and data.target are those of a pair",
            fix="Leave one of them out.",
        )
    elif options.source == options.target:
        yield Fault(
            "target", "must be another field than data.source", got=f"'{options.target}' for both"
        )


def _field(entry: Any, option: str, name: str, where: str) -> str:
    value = entry
    for part in [name] if name in entry else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            has = list(value) if isinstance(value, Mapping) else []
            raise ConfigError(
                Fault(
                    f"data.{option}",
                    f"no field is called '{name}' in {where}",
                    fix=f"{choices(part, has, 'It has')} Name one with data.{option}=FIELD.",
                )
            )
        value = value[part]
    if value is None:
        return ""  # counted as empty
    if not isinstance(value, str):
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be a text",
                got=f"{str(value)[:40]} as '{name}' in {where}",
                fix="Name another field.",
            )
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must be Unicode",
                got=f"half a surrogate pair at character {error.start} of '{name}' in {where}",
                fix="Leave it out.",
            )
        ) from None
    return value


def absent(name: str, package: str, extra: str) -> Iterator[Fault]:
    if find_spec(package) is None:
        yield Fault(
            "name",
            f"corpus '{name}' needs the package {package}",
            got="none",
            fix=f"Use pip install 'xformer_kit[{extra}]'.",
        )


class RecordFiles(DividedFiles, Records):
    """Base: records in files. A corpus defines `suffixes` and `entries`."""

    def __init__(
        self,
        *,
        path: str,  # a file, a directory (its files of this kind), or a glob
        source: str = "source",  # field (a table's column) of the source of a pair
        target: str = "target",  # field of its target
        text: str | None = None,  # field of a text, in place of a pair
        valid: float | None = None,  # share for validation; null is 0.05, or valid_path
        test: float = 0.0,  # share for the test
        valid_path: str | None = None,  # files for validation
        test_path: str | None = None,  # files for the test
    ):
        self.choose(source, target, text)
        self.find(valid, test, path, valid_path, test_path)

    @classmethod
    def check(cls, options, context):
        yield from field_faults(options)
        yield from super().check(options, context)


@CORPORA.register("jsonl", also_called=("json", "json_lines", "ndjson"))
class JSONLines(RecordFiles):
    """Text files in utf-8 with one JSON object in each line: *.jsonl, *.jsonl.gz, *.jsonl.zst.
    Empty lines, and fields that are null, count as empty.
    """

    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def entries(self, what: str) -> Iterator[Entry]:
        for file in self.files[what]:
            for number, line in enumerate(files.lines(file, what), 1):
                where = f"line {number:,} of '{file}'"
                yield _object(line, what, where) if line.strip() else self._empty(), where

    def _empty(self) -> dict[str, None]:
        return dict.fromkeys(name for _, name in self.fields)


def _object(line: str, option: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            Fault(
                f"data.{option}",
                f"must hold one JSON object in each line; {where} cannot be read ({reason})",
                fix="A file that was cut off ends so; write it again.",
            )
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(
            Fault(
                f"data.{option}",
                "must hold one JSON object in each line",
                got=f"{line[:40]} in {where}",
                fix="Use {...}.",
            )
        )
    return found


@CORPORA.register("parquet", also_called=("arrow", "pyarrow"))
class Parquet(RecordFiles):
    """Parquet files, *.parquet, read a piece at a time (needs pyarrow, the extra `data`). Fields
    that are null count as empty.
    """

    suffixes = (".parquet",)

    @classmethod
    def check(cls, options, context):
        missing = list(absent("parquet", "pyarrow", "data"))
        yield from missing or super().check(options, context)

    @classmethod
    def file_faults(cls, path: str, option: str) -> Iterator[Fault]:
        try:
            for file in files.find(path, option, cls.suffixes)[: files.LOOKED_AT]:
                _table(file, option).close()
        except ConfigError as error:
            yield from files.option_faults(error)

    def entries(self, what: str) -> Iterator[Entry]:
        import pyarrow

        for file in self.files[what]:
            with _table(file, what) as table:
                number = 0
                columns = self.columns(table.schema_arrow.names)
                try:
                    for batch in table.iter_batches(AT_ONCE, columns=columns):
                        for entry in batch.to_pylist():
                            number += 1
                            yield entry, f"row {number:,} of '{file}'"
                except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
                    raise _unreadable(file, what, error, f" behind row {number:,}") from None


def _table(file: Path, option: str) -> Any:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, option, error) from None


def _unreadable(file: Path, option: str, error: Exception, where: str = "") -> ConfigError:
    return ConfigError(
        Fault(
            f"data.{option}",
            "must be a whole parquet file",
            got=f"'{file}'{where} ({one_line(error, 120)})",
            fix="Write it again.",
        )
    )
