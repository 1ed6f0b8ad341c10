"""A sample of the model's text at every validation, in samples.csv and as a table for the
logger.
"""

import csv
import io
from pathlib import Path
from typing import Any

from tasks.evaluation import EvaluatedTask as Task
from tasks.logging.files import replace_text
from xformer_kit.registry import ConfigError
from xformer_kit.registry.printable import cell, text_of
from xformer_kit.registry.saved_files import read_table

COLUMNS = ["step", "prompt", "text", "right"]  # the last is empty if no text is right


class Samples:
    """Samples use generators of their own, so training is the same with and without them."""

    def __init__(self, run_dir: Path, tell: Any):
        self.path = run_dir / "samples.csv"
        self.tell = tell

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        sample = task.sample()
        if sample is None:
            return
        rows = [row for row in self._rows() if row[0] < task.step] + [[task.step, *sample]]
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *(map(cell, row) for row in rows)])
        replace_text(self.path, text.getvalue())  # a kill loses no earlier sample
        self.tell.table("samples", COLUMNS, rows, task.step)

    def _rows(self) -> list[list[Any]]:
        try:
            columns, rows = read_table(self.path)
        except (FileNotFoundError, ConfigError):
            return []
        return [[int(row[0]), *map(text_of, row[1:])] for row in rows] if columns == COLUMNS else []
