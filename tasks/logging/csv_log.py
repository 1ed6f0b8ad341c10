"""The csv files of a run: metrics.csv, which the steps determine, and speed.csv, which the machine
does.
"""

import csv
import hashlib
import io
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.logging.files import replace_text, sync_path
from tasks.types import Facts, State
from xformer_kit.registry.saved_files import read_table, read_whole_rows

log = logging.getLogger("xformer")
Row = Mapping[str, Any]


class CsvLog:
    """A csv file with one row per step. Rows have been handed to the operating system when `add`
    returns.

    Columns that appear later are added at the end, by rewriting the file.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]):
        self.path = path
        self.columns = list(columns)
        self.count = 0  # rows
        self._digest = hashlib.sha256()  # of the bytes that were written

    def open(self, last_step: int, mark: Facts | None = None) -> "CsvLog":
        """Continue after `last_step`: later rows, and a row that was cut off, are dropped.

        mark: what `mark` returned after `last_step`. A warning is logged if rows up to there are
        missing or changed.
        """
        header, rows = self._whole_rows()
        self.columns = header or self.columns
        kept = [row for row in rows if int(row["step"]) <= last_step]
        if mark and (lost := self._lost(mark, kept)):
            log.warning("%s: %s", self.path, lost)
        self._write_all(kept)
        return self

    def add(self, row: Row) -> None:
        new = [name for name in row if name not in self.columns]
        if new:
            self.columns += new
            self._write_all(self._whole_rows()[1])
        line = self._line([_text(row.get(name)) for name in self.columns])
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(line)
        self._count(line)

    def mark(self) -> State:
        """What the file holds, for `open`: rows, columns, and the sha256 of its bytes. They are on
        the disk when it returns.
        """
        if self.path.exists():
            sync_path(self.path)
        return {
            "rows": self.count,
            "columns": len(self.columns),
            "sha256": self._digest.hexdigest(),
        }

    def _lost(self, mark: Facts, rows: list[dict[str, str]]) -> str | None:
        """What is not as it was. Columns that were added since are left out of the comparison."""
        before, then = self.columns[: mark["columns"]], mark["rows"]
        if len(rows) < then:
            gone = then - len(rows)
            return (
                f"{gone:,} of the {then:,} rows up to the checkpoint {'are' if gone > 1 else 'is'}"
                " missing."
            )
        digest = hashlib.sha256(self._line(before).encode())
        for row in rows:
            digest.update(self._line([row[name] for name in before]).encode())
        if len(rows) > then or digest.hexdigest() != mark["sha256"]:
            return "rows up to the checkpoint were changed since it was written."
        return None

    def _whole_rows(self) -> tuple[list[str], list[dict[str, str]]]:
        try:
            columns, rows = read_whole_rows(self.path)
        except FileNotFoundError:
            return [], []
        return columns, _named(columns, rows)

    def _line(self, values: list[str]) -> str:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        return line.getvalue()

    def _write_all(self, rows: list[dict[str, str]]) -> None:
        header = self._line(self.columns)
        lines = [self._line([row.get(name, "") for name in self.columns]) for row in rows]
        replace_text(self.path, "".join([header, *lines]), sync=True)
        self.count, self._digest = 0, hashlib.sha256(header.encode())
        for line in lines:
            self._count(line)

    def _count(self, line: str) -> None:
        self.count += 1
        self._digest.update(line.encode())


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and the whole rows of a csv file; raises as
    `xformer_kit.registry.saved_files.read_table` does.
    """
    columns, rows = read_table(path)
    return columns, _named(columns, rows)


def _named(columns: list[str], rows: list[list[str]]) -> list[dict[str, str]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _text(value: Any) -> str:
    """Numbers with nine significant digits, enough to distinguish any two fp32 values."""
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, ".9g") if math.isfinite(value) else str(value)
    return str(value)
