"""The csv files of a run with one row per step: metrics.csv, which is reproducible, speed.csv and
norms.csv.
"""

import csv
import hashlib
import io
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import Facts, State
from tasks.logging.files import replace_text, sync_path
from xformer_kit.files.saved_files import read_whole_rows

log = logging.getLogger("xformer")


@dataclass(eq=False)
class CsvLog:
    """A csv file with one row per step. When `add` returns, the row has been passed to the
    operating system.

    New columns are added at the end; the file is rewritten for them.
    """

    path: Path
    columns: Sequence[str]

    def open(self, last_step: int, fingerprint: Facts | None = None) -> "CsvLog":
        """Continue after `last_step`: later rows and an incomplete last row are removed.

        fingerprint: what `fingerprint` returned after `last_step`. A warning is logged if rows up
        to there are missing or changed.

        Columns that only removed rows have are removed too: a run that ended at `last_step` does
        not have them.
        """
        header, rows = self._complete_rows()
        first, self.columns = self.columns, header or self.columns
        kept = [row for row in rows if int(row["step"]) <= last_step]
        if fingerprint and self._has_changed(fingerprint, kept):
            log.warning("%s: rows up to the checkpoint are missing or were changed.", self.path)
        self.columns = [
            name for name in self.columns if name in first or any(row[name] for row in kept)
        ]
        self._rewrite(kept)
        return self

    def add(self, row: Facts) -> None:
        if new := [name for name in row if name not in self.columns]:
            self.columns = [*self.columns, *new]
            self._rewrite(self._complete_rows()[1])
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(_csv_text([[_format_cell(row.get(name)) for name in self.columns]]))

    def fingerprint(self) -> State:
        """Returns the numbers of rows and columns and the sha256 of the file, for `open`. The file
        is on the disk when it returns.
        """
        sync_path(self.path)
        data = self.path.read_bytes()
        return {
            "rows": data.count(b"\n") - 1,
            "columns": len(self.columns),
            "sha256": hashlib.sha256(data).hexdigest(),
        }

    def _has_changed(self, fingerprint: Facts, rows: list[Facts]) -> bool:
        """Whether rows differ from those of a fingerprint, in its columns."""
        columns = self.columns[: fingerprint["columns"]]
        text = _csv_text([columns, *([row[name] for name in columns] for row in rows)])
        return hashlib.sha256(text.encode()).hexdigest() != fingerprint["sha256"]

    def _complete_rows(self) -> tuple[list[str], list[Facts]]:
        try:
            columns, rows = read_whole_rows(self.path)
        except FileNotFoundError:
            return [], []
        return columns, [dict(zip(columns, row, strict=True)) for row in rows]

    def _rewrite(self, rows: Iterable[Facts]) -> None:
        cells = ([row.get(name, "") for name in self.columns] for row in rows)
        replace_text(self.path, _csv_text([self.columns, *cells]), sync=True)


def _csv_text(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _format_cell(value: Any) -> str:
    """Returns a float with nine significant digits, which distinguish any two fp32 values."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
