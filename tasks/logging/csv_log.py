"""The csv files of a run: metrics.csv, which the steps determine, and speed.csv, which the machine
does.
"""

import csv
import hashlib
import io
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import Facts, State
from tasks.logging.files import replace_text, sync_path
from xformer_kit.registry.saved_files import read_whole_rows

log = logging.getLogger("xformer")
Row = Facts


@dataclass(eq=False)
class CsvLog:
    """A csv file with one row per step. Rows have been handed to the operating system when `add`
    returns.

    Columns that appear later are added at the end, by rewriting the file.
    """

    path: Path
    columns: Sequence[str]

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
        if new := [name for name in row if name not in self.columns]:
            self.columns = [*self.columns, *new]
            self._write_all(self._whole_rows()[1])
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(_lines([[_text(row.get(name)) for name in self.columns]]))

    def mark(self) -> State:
        """What the file holds, for `open`: rows, columns, and the sha256 of its bytes. They are on
        the disk when it returns.
        """
        sync_path(self.path)
        data = self.path.read_bytes()
        return {
            "rows": data.count(b"\n") - 1,
            "columns": len(self.columns),
            "sha256": hashlib.sha256(data).hexdigest(),
        }

    def _lost(self, mark: Facts, rows: list[Row]) -> str | None:
        """What is not as it was. Columns that were added since are left out of the comparison."""
        before, then = self.columns[: mark["columns"]], mark["rows"]
        if (gone := then - len(rows)) > 0:
            are = "are" if gone > 1 else "is"
            return f"{gone:,} of the {then:,} rows up to the checkpoint {are} missing."
        text = _lines([before, *([row[name] for name in before] for row in rows)])
        if gone or hashlib.sha256(text.encode()).hexdigest() != mark["sha256"]:
            return "rows up to the checkpoint were changed since it was written."
        return None

    def _whole_rows(self) -> tuple[list[str], list[Row]]:
        try:
            columns, rows = read_whole_rows(self.path)
        except FileNotFoundError:
            return [], []
        return columns, [dict(zip(columns, row, strict=True)) for row in rows]

    def _write_all(self, rows: Iterable[Row]) -> None:
        cells = ([row.get(name, "") for name in self.columns] for row in rows)
        replace_text(self.path, _lines([self.columns, *cells]), sync=True)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _text(value: Any) -> str:
    """Numbers with nine significant digits, enough to distinguish any two fp32 values."""
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, ".9g") if math.isfinite(value) else str(value)
    return str(value)
