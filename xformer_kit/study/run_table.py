"""Reads a CSV file with a run of any trainer in each row into the results of a study."""

import csv
import io
import math
from collections import Counter
from pathlib import Path

from xformer_kit.metrics import direction
from xformer_kit.registry import config_error, suggestion
from xformer_kit.study.nodes import Node
from xformer_kit.study.results import Outcome, Results, Status

VARIANT, SEED = "variant", "seed"
SEPARATORS = (",", ";", "\t")
LARGEST = 1e100  # values are below it, so that their squares are finite
Row = tuple[int, dict[str, str]]  # number of the line, column -> text


def read_run_table(
    path: Path,
    measured: str | None = None,
    baseline: str | None = None,
    higher_is_better: bool | None = None,
    margin: float | None = None,
) -> Results:
    """Returns the results of the runs in a file.

    The columns are `variant`, `seed` and any number of metrics. A run whose metric is empty or not
    finite has failed. Columns of texts are ignored. Without the column `seed`, runs are not paired.

    measured: the metric that is compared; it can be left out if there is one. baseline: the variant
    that the others are compared with, by default that of the first row. higher_is_better: needed
    for a metric whose direction is not known. Raises ConfigError for a file that is no such table.
    """
    rows = _rows(path)
    columns = [name for name in rows[0][1] if name not in (VARIANT, SEED)]
    numeric = [name for name in columns if _numeric(rows, name)]
    chosen = _metric(path, columns if measured else numeric or columns, measured)
    metrics = [chosen, *(name for name in numeric if name != chosen)]
    if margin is not None and not 0 < margin < LARGEST:
        raise config_error("--margin", "must be above 0", margin, "Try 0.01.")
    if direction(chosen) is None and higher_is_better is None:
        rule = f"must be lower or higher, because the name '{chosen}' does not say it"
        raise config_error("--better", rule, "nothing", "Try --better higher.")
    names = list(dict.fromkeys(row[VARIANT] for _, row in rows))
    if baseline is not None and baseline not in names:
        rule = f"no {VARIANT} of {path} is called '{baseline}'"
        raise config_error("--baseline", rule, fix=suggestion(baseline, names))
    first = names[0] if baseline is None else baseline
    names = [first, *(name for name in names if name != first)]
    study = {
        "name": path.stem,
        "question": f"{path.name}: {chosen} of {len(names)} variant{'s' * (len(names) > 1)}",
        "metric": chosen,
        "higher_is_better": higher_is_better,
        "also": metrics[1:],
        "margin": margin,
        "design": {"name": "one_at_a_time"},
        "budget": {"match": "none", "tolerance": 0.0},
    }
    outcomes = _outcomes(path, rows, names, metrics, chosen)
    return Results(study, [], [], [_variant(name) for name in names], outcomes)


def _variant(name: str) -> Node:
    """A variant as in the plan of a study, without overrides and known costs."""
    factor, equals, level = name.partition("=")
    levels = {factor: level} if equals else {}
    shared: Node = {"words": [], "tuned": [], "knob": [], "off": 0.0, "cost": {"steps": 0}}
    return {"label": name, "name": name, "levels": levels, **shared}


def _rows(path: Path) -> list[Row]:
    """The rows, without spaces around cells. Raises ConfigError if there are none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        header = text.partition("\n")[0]
        reader = csv.reader(io.StringIO(text), delimiter=max(SEPARATORS, key=header.count))
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except OSError as error:
        raise config_error(path, f"cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise config_error(path, f"must be CSV in utf-8: {error}") from None
    names = lines[0][1] if lines else []
    columns = [name.lower() if name.lower() in (VARIANT, SEED) else name for name in names]
    fix = f"The first line names the columns: {VARIANT},{SEED},val_loss."
    if VARIANT not in columns:
        raise config_error(path, f"must have a column {VARIANT}", ", ".join(columns) or "none", fix)
    if repeated := [name for name, count in Counter(columns).items() if count > 1]:
        raise config_error(path, "names a column twice", ", ".join(repeated), fix)
    rows = [(line, dict(zip(columns, cells, strict=False))) for line, cells in lines[1:]]
    for (line, cells), (_, row) in zip(lines[1:], rows, strict=True):
        if len(cells) != len(columns) or not row[VARIANT]:
            rule = f"must have {len(columns)} cells, and the name of a variant"
            raise config_error(f"{path}:{line}", rule, fix="Complete the line.")
    if not rows:
        raise config_error(path, "has no run", fix="Write a line for each run.")
    return rows


def _numeric(rows: list[Row], column: str) -> bool:
    """Whether all cells of a column are numbers or empty."""
    try:
        list(map(float, filter(None, (row[column] for _, row in rows))))
    except ValueError:
        return False
    return True


def _metric(path: Path, metrics: list[str], measured: str | None) -> str:
    """The metric that is compared."""
    if measured is not None:
        if measured in metrics:
            return measured
        rule = f"no column of {path} is called '{measured}'"
        raise config_error("--metric", rule, fix=suggestion(measured, metrics))
    if len(metrics) != 1:
        rule = f"must be named, because {path} has {len(metrics)} columns besides {VARIANT}"
        fix = f"Try --metric {metrics[0]}." if metrics else "Add a column, such as val_loss."
        raise config_error("--metric", f"{rule} and {SEED}", ", ".join(metrics) or "none", fix)
    return metrics[0]


def _outcomes(
    path: Path, rows: list[Row], names: list[str], metrics: list[str], chosen: str
) -> list[Outcome]:
    """The runs. Those without a seed get numbers that no other variant has, so that they are not
    paired.
    """
    outcomes: list[Outcome] = []
    lines: dict[tuple[str, int], int] = {}
    for line, row in rows:
        seed = _seed(path, line, row[SEED]) if SEED in row else len(outcomes)
        if other := lines.get((row[VARIANT], seed)):
            rule = f"repeats seed {seed} of {row[VARIANT]}, which line {other} has"
            raise config_error(f"{path}:{line}", rule, fix="Give each run its own seed.")
        lines[row[VARIANT], seed] = line
        values = {name: _number(path, line, name, row[name]) for name in metrics}
        known = {name: value for name, value in values.items() if abs(value) < LARGEST}
        ended = chosen in known
        why = "" if ended else f"its {chosen} is {row[chosen] or 'empty'}"
        index, key = names.index(row[VARIANT]), f"{path}:{line}"
        status: Status = "finished" if ended else "failed"
        outcomes.append(Outcome(index, seed, key, status, "", why=why, facts=known))
    return outcomes


def _seed(path: Path, line: int, text: str) -> int:
    try:
        if (seed := float(text)) == int(seed):  # pandas writes 1.0
            return int(seed)
        raise ValueError
    except (ValueError, OverflowError):
        rule = f"{SEED} must be an integer"
        raise config_error(f"{path}:{line}", rule, text or "nothing") from None


def _number(path: Path, line: int, column: str, text: str) -> float:
    """The number in a cell; NaN if it is empty."""
    try:
        return float(text) if text else math.nan
    except ValueError:
        rule = f"{column} must be numbers"
        raise config_error(
            f"{path}:{line}", rule, text, "Remove the column, or correct it."
        ) from None
