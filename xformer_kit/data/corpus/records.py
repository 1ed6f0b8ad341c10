"""Corpora whose entries have named fields: JSON, tables in CSV and in parquet.

Two fields are a pair; one field is a text. A dot selects a nested field: `translation.en`.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, TextPairs, missing_package
from xformer_kit.data.corpus.hash_split import HashSplitCorpus, HashSplitFiles, join_sources
from xformer_kit.data.plain import Plain
from xformer_kit.registry import ConfigError, Fault, config_error, suggestion
from xformer_kit.registry.messages import one_line

ENTRIES_PER_BATCH = 1024  # entries that are read at once
JSON_RULE = "must hold one JSON object in each line, or one array of them"
Entry = tuple[Any, str]  # a mapping of fields, and its position, for messages


class Records(HashSplitCorpus):
    """Base of the corpora of records. A corpus defines `entries`.

    With the option `text`, entries are texts, each followed by a blank line; otherwise pairs of the
    fields `source` and `target`. Splits are cut by a hash of the text or of the source.
    """

    documents = True
    source: str
    second: str | None
    target: str
    text: str | None

    @cached_property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """(option, name of the field) of each field."""
        if self.text is not None:
            return (("text", self.text),)
        second = [] if self.second is None else [("second", self.second)]
        return ("source", self.source), *second, ("target", self.target)

    @classmethod
    def forms(cls) -> dict[str, str]:
        return {"pairs": "", "text": " data.text=FIELD"}

    @classmethod
    def form_of(cls, options: Plain) -> str:
        return "pairs" if options.get("text") is None else "text"

    @classmethod
    def check(cls, options, context):
        """Yields the faults of `source`, `target` and `text`."""
        pair = [options.source, options.second, options.target]
        if options.text is not None and pair != ["source", None, "target"]:
            yield Fault(
                "text",
                "is the field of a text, and source, second and target are those of a pair",
                fix="Leave one of them out.",
            )
        elif len({*pair}) < len(pair):
            yield Fault(
                "target",
                "source, second and target must be different fields",
                ", ".join(map(str, pair)),
            )
        yield from super().check(options, context)

    def entries(self, split: str) -> Iterator[Entry]:
        """Yields the entries of a given split, with at least those of `fields` that exist."""
        raise NotImplementedError

    def columns(self, available: list[str]) -> list[str]:
        """Returns the columns of a table that hold the fields. If one is missing, all columns,
        which a message then lists.
        """
        names = {name if name in available else name.partition(".")[0] for _, name in self.fields}
        return sorted(names) if names <= {*available} else available

    def rows(self, split: str) -> TextPairs:
        for entry, where in self.entries(split):
            # one text, or a source and a target
            row: Any = tuple(self._field(entry, *field, where) for field in self.fields)
            yield (join_sources(row[:-1]), row[-1]) if len(row) > 1 else row

    def texts(self, split: str, side: str | None = None) -> Iterator[str]:
        if self.form == "pairs":
            yield from super().texts(split, side)
            return
        for (text,) in self.pairs(split):  # type: ignore[misc]
            if text.strip():
                yield text + "\n\n"

    def _field(self, entry: Any, option: str, name: str, where: str) -> str:
        """Returns the text of a field; "" for null. Raises ConfigError if it is no text."""
        value = entry
        for key in [name] if name in entry else name.split("."):
            fields = value if isinstance(value, Mapping) else {}
            if key not in fields:
                raise self.config_error(
                    option,
                    f"no field is called '{name}' in {where}",
                    fix=f"{suggestion(key, fields, 'It has')} Name one with"
                    f" {self.option_path(option)}=FIELD.",
                )
            value = fields[key]
        if value is None:
            return ""  # counted as empty
        is_number = type(value) in (int, float) and math.isfinite(value)
        if option == "target" and is_number:  # a class, or a number to predict
            return str(value)
        if not isinstance(value, str):
            raise self.config_error(
                option,
                "must be a text" + " or a finite number" * (option == "target"),
                f"{str(value)[:40]} as '{name}' in {where}",
                "Name another field.",
            )
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.config_error(
                option,
                "must be Unicode",
                f"half a surrogate pair in '{name}' in {where}",
                "Leave it out.",
            ) from None
        return value


@dataclass(kw_only=True, eq=False)
class RecordFiles(Records, HashSplitFiles):
    """Base of the corpora of records in files. A corpus defines `suffixes` and `entries`."""

    path: str  # a file, a directory (its files of this kind), or a glob
    source: str = "source"  # field (a table's column) of the source of a pair
    # field of a second source, which ` ||| ` joins to the first; null: none
    second: str | None = None
    target: str = "target"  # field of its target
    text: str | None = None  # field of a text, instead of a pair
    valid: float | None = None  # share for validation; null is 0.05, or valid_path
    test: float = 0.0  # share for the test
    valid_path: str | None = None  # files for validation
    test_path: str | None = None  # files for the test


@CORPORA.register("jsonl", also_called=("json_lines", "ndjson"), similar=("json",))
class JSONLines(RecordFiles):
    """Text files in utf-8 with one JSON object in each line: *.jsonl, *.jsonl.gz, *.jsonl.zst. A
    file that begins with [ is an array of objects, and is read as a whole.

    Empty lines, and fields that are null, count as empty.
    """

    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def entries(self, split: str) -> Iterator[Entry]:
        (option,) = self.split_options[split]
        path, empty = self.option_path(option), dict.fromkeys(name for _, name in self.fields)
        for file in self.files[split]:
            unit, entries = "line", files.lines(file, path)
            if next(files.read(file, path), "").lstrip().startswith("["):
                text = "".join(files.read(file, path))
                unit, entries = "object", self._parsed(text, option, f"'{file}'")
            entry: Any
            for number, entry in enumerate(entries, 1):
                where = f"{unit} {number:,} of '{file}'"
                if isinstance(entry, str):
                    entry = self._parsed(entry, option, where) if entry.strip() else empty
                if not isinstance(entry, dict):
                    raise self.config_error(
                        option, JSON_RULE, f"{json.dumps(entry)[:40]} in {where}", "Use {...}."
                    )
                yield entry, where

    def _parsed(self, text: str, option: str, where: str) -> Any:
        """Returns the value of a JSON text. Raises ConfigError if it is none."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.config_error(
                option,
                f"{JSON_RULE}; {where} cannot be read ({one_line(error)})",
                fix="Write it again.",
            ) from None


@CORPORA.register("csv", also_called=("comma_separated",))
@dataclass(kw_only=True, eq=False)
class CSV(RecordFiles):
    """Tables in text files in utf-8, with the names of the columns in the first line: *.csv,
    *.csv.gz, *.csv.zst. A field that holds a delimiter, a quote (doubled) or a line end is in
    quotes. Empty lines count as empty.
    """

    suffixes = (".csv", ".csv.gz", ".csv.zst")

    delimiter: str = ","  # one character between two fields, such as ; or tab

    @classmethod
    def check(cls, options, context):
        given = options.delimiter
        if given != "tab" and (len(given) != 1 or given in '"\r\n \0'):
            yield Fault(
                "delimiter",
                "must be one character other than a quote, a space or a line end",
                f"{given!r}",
                "Try ',', ';' or tab.",
            )
        yield from super().check(options, context)

    def entries(self, split: str) -> Iterator[Entry]:
        (option,) = self.split_options[split]
        csv.field_size_limit(files.MAX_LINE)
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        empty = dict.fromkeys(name for _, name in self.fields)
        for file in self.files[split]:
            lines = (f"{line}\n" for line in files.lines(file, self.option_path(option)))
            rows = csv.reader(lines, delimiter=delimiter, strict=True)
            try:
                names = next(filter(None, rows), [])
                if 0 < len(names) < len(self.fields):
                    raise self.config_error(
                        "delimiter",
                        "must be that of the file",
                        f"{self.delimiter!r}, and {names} as the first line of '{file}'",
                        "Try ';' or tab.",
                    )
                for row in rows:
                    where = f"line {rows.line_num:,} of '{file}'"
                    if row and len(row) != len(names):
                        raise self.config_error(
                            option,
                            f"must have {len(names)} columns",
                            f"{len(row)} in {where}",
                            "Mend the line.",
                        )
                    yield dict(zip(names, row, strict=True)) if row else empty, where
            except csv.Error as error:
                raise self.config_error(
                    option,
                    "must be a table",
                    f"line {rows.line_num:,} of '{file}' ({one_line(error)})",
                    'A field with a quote or a line end is in quotes, and has "" for each quote.',
                ) from None


@CORPORA.register("parquet", similar=("arrow", "pyarrow"))
class Parquet(RecordFiles):
    """Parquet files, *.parquet, read in batches (needs pyarrow, the extra `data`). Fields that are
    null count as empty.
    """

    suffixes = (".parquet",)

    @classmethod
    def check(cls, options, context):
        missing = list(missing_package(cls, "pyarrow", "data"))
        yield from missing or super().check(options, context)

    @classmethod
    def file_faults(cls, path: str, option: str) -> Iterator[Fault]:
        try:
            for file in files.find(path, option, cls.suffixes)[: files.CHECKED_FILES]:
                with _table(file, option):
                    pass
        except ConfigError as error:
            yield from error.faults

    def entries(self, split: str) -> Iterator[Entry]:
        for file in self.files[split]:
            with _table(file, self.option_path(*self.split_options[split])) as table:
                columns = self.columns(table.schema_arrow.names)
                batches = table.iter_batches(ENTRIES_PER_BATCH, columns=columns)
                rows = (row for batch in batches for row in batch.to_pylist())
                for number, row in enumerate(rows, 1):
                    yield row, f"row {number:,} of '{file}'"


@contextmanager
def _table(file: Path, config_path: str) -> Iterator[Any]:
    """Opens a parquet file. Raises ConfigError if it cannot be read."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as table:
            yield table
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise config_error(
            config_path,
            "must be a whole parquet file",
            f"'{file}' ({one_line(error, 120)})",
            "Write it again.",
        ) from None
