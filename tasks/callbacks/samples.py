"""What does the model write by now? A sample at every validation, in samples.csv and as a table for
the logger.
"""

import csv
import os
from pathlib import Path
from typing import Any

from tasks.evaluation import EvaluatedTask as Task
from xformer_kit.registry import ConfigError
from xformer_kit.registry.printable import cell, text_of
from xformer_kit.registry.saved_files import read_table

COLUMNS = ["step", "prompt", "text", "right"]  # the last is empty where no text is the right one


class Samples:
    """Draws from generators of its own, so that training goes on as if nobody had asked."""

    def __init__(self, run_dir: Path, tell: Any):
        self.path = run_dir / "samples.csv"
        self.tell = tell

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        sample = task.sample()
        if sample is None:
            return
        rows = [row for row in self._rows() if row[0] < task.step] + [[task.step, *sample]]
        beside = self.path.with_name(f".{self.path.name}.new")  # a kill loses no earlier sample
        with open(beside, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(map(cell, row) for row in rows)])
        os.replace(beside, self.path)
        self.tell.table("samples", COLUMNS, rows, task.step)

    def _rows(self) -> list[list[Any]]:
        try:
            columns, rows = read_table(self.path)
        except (FileNotFoundError, ConfigError):
            return []
        return [[int(row[0]), *map(text_of, row[1:])] for row in rows] if columns == COLUMNS else []
