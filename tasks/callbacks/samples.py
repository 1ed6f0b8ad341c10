"""Writes a text of the model at each validation to samples.csv, and to the logger as a table."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.logging.files import replace_text
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.files.saved_files import read_table
from xformer_kit.registry import ConfigError
from xformer_kit.text.printable import cell, text_of

COLUMNS = ["step", "prompt", "text", "right"]  # right: the expected text, if there is one


@dataclass(eq=False)
class Samples:
    """Appends `task.sample()`, which does not change the random numbers of training. The ranks of a
    sharded model all compute it, and the first writes.
    """

    run_dir: Path
    logger: Any

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        if not (trainer.is_global_zero or task.is_sharded):
            return
        sample = task.sample()
        if sample is None or not trainer.is_global_zero:
            return
        path = self.run_dir / "samples.csv"
        rows = [row for row in _rows(path) if row[0] < task.step] + [[task.step, *sample]]
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *(map(cell, row) for row in rows)])
        replace_text(path, text.getvalue())  # if the process is killed, earlier samples remain
        self.logger.table("samples", COLUMNS, rows, task.step)


def _rows(path: Path) -> list[list[Any]]:
    try:
        columns, rows = read_table(path)
    except (FileNotFoundError, ConfigError):
        return []
    return [[int(row[0]), *map(text_of, row[1:])] for row in rows] if columns == COLUMNS else []
