"""Reads files of a run's directory as plain data: csv tables with one row per step, and JSON; and
checks that what is written into the directory stays in it.

A file may be damaged or untrusted. Each function raises ConfigError with one sentence that names
the file.
"""

import csv
import errno
import io
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line

RESTORE_FIX = "Bring a copy of it back, or remove it."
DIGITS = 18  # of a step; more do not fit into 64 bits
MAX_CELL = 40  # characters of a cell in a message
# W&B links to a log in the user's cache, which nothing writes by this name.
LINK_OF_WANDB = "wandb/*/logs/debug-core.log"
# Files of a run that are written in place, thus also by their other names; others are replaced.
IN_PLACE = (
    *("train.log", "profile.txt", "trace.json", "sweep.csv"),
    *("wandb_id.txt", "mlflow_id.txt", "pictures/*"),
)
Table = tuple[list[str], list[list[str]]]  # columns, rows


def check_stays_inside(directory: Path) -> None:
    """Raises ConfigError if a directory contains a symbolic link that leads out of it, through
    which a file elsewhere would be written, a second name of a file that is written in place, or a
    FIFO, socket or device. The directory itself may be a link, and links within it may lead to each
    other.
    """
    root = os.path.realpath(directory)
    for folder, folders, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            leads_out = os.path.islink(path) and (
                os.path.commonpath([os.path.realpath(path), root]) != root
            )
            if Path(path).match(LINK_OF_WANDB):
                continue
            found = f"a link to {os.readlink(path)}" if leads_out else ""
            if not found and is_special(path):
                found = "a FIFO or a device"
            if not found and os.path.isfile(path) and any(map(Path(path).match, IN_PLACE)):
                found = "a hard link, another name of a file" * (os.stat(path).st_nlink > 1)
            if found:
                raise config_error(
                    Path(directory, os.path.relpath(path, root)),
                    f"must be a file or a directory of {directory} itself, which is written into",
                    got=found,
                    fix="Replace it with a copy, or remove it.",
                )


def readable(path: Path) -> Path:
    """Returns the path of a file that is read. Raises OSError for a FIFO, a socket or a device, on
    which a process may wait forever.
    """
    if is_special(path):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path


def is_special(path: str | Path) -> bool:
    """Whether there is a FIFO, a socket or a device at the path."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def read_object(
    path: Path,
    types: Mapping[str, type | tuple[type, ...]],
    needs: Iterable[str] = (),
    *,
    fix: str = RESTORE_FIX,
) -> dict[str, Any]:
    """Returns the object of a JSON file. types: types of the values of some keys; needs: required
    keys.

    Raises FileNotFoundError if there is no file, and ConfigError if it cannot be read or is no such
    object.
    """
    try:
        found = json.loads(readable(path).read_text(encoding="utf-8"))
        # half a surrogate pair can be read but never written
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise config_error(path, f"cannot be read as JSON: {one_line(error)}", fix=fix) from None
    if not isinstance(found, dict):
        raise config_error(path, "must be a JSON object", type(found).__name__, fix)
    if missing := [key for key in needs if key not in found]:
        raise config_error(
            path, f"must have {', '.join(missing)}", ", ".join(found) or "nothing", fix
        )
    for key, expected in types.items():
        if key in found and not isinstance(found[key], expected):
            raise config_error(
                path,
                f"has a {key} of the type {type(found[key]).__name__}, which no run writes",
                fix=fix,
            )
    return found


def read_table(path: Path, every_step: bool = False) -> Table:
    """Returns (columns, rows) of a csv file, without incomplete rows: those without a line end or
    without a step. With `every_step`, a step that is no number raises ConfigError instead.

    Raises FileNotFoundError if there is no file, and ConfigError if it cannot be read as csv in
    utf-8.
    """
    try:
        text = readable(path).read_text(encoding="utf-8")
        reader = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
        columns = next(reader, [])
        rows = list(reader)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise config_error(path, f"cannot be read: {one_line(error)}", fix=RESTORE_FIX) from None
    for number, row in enumerate(rows, start=2) if every_step and "step" in columns else ():
        step = row[columns.index("step")] if len(row) == len(columns) else ""
        if step and not _is_step(step):
            raise config_error(
                f"{path}, row {number}",
                f"the step must be a whole number of at most {DIGITS} digits",
                repr(step[:MAX_CELL]),
                RESTORE_FIX,
            )
    return columns, _with_step(columns, rows)


def read_whole_rows(path: Path) -> Table:
    """Like `read_table`, for a file that may be damaged: skips lines that are not csv in utf-8."""
    lines = readable(path).read_bytes().split(b"\n")[:-1]
    rows = [row for row in map(_row, lines) if row is not None]
    columns = rows[0] if rows and lines and _row(lines[0]) is not None else []
    return columns, _with_step(columns, rows[1:])


def read_columns(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Returns {column: (steps, values)} of a csv file of numbers; empty cells are skipped. Raises
    like `read_table`, and ConfigError for a cell, or a step, that is no number.
    """
    columns, rows = read_table(path, every_step=True)
    found: dict[str, tuple[list[int], list[float]]] = {
        name: ([], []) for name in columns if name != "step"
    }
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        step = int(cells.pop("step"))
        for name, text in cells.items():
            if not text:
                continue
            try:
                value = float(text)
            except ValueError as error:
                raise config_error(
                    path, f"{name} must be numbers: {one_line(error)}", fix=RESTORE_FIX
                ) from None
            found[name][0].append(step)
            found[name][1].append(value)
    return found


def _with_step(columns: list[str], rows: list[list[str]]) -> list[list[str]]:
    if "step" not in columns:
        return []
    step, width = columns.index("step"), len(columns)
    return [row for row in rows if len(row) == width and _is_step(row[step])]


def _is_step(text: str) -> bool:
    """`str.isdigit` is also true for '²', which is no number."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS


def _row(line: bytes) -> list[str] | None:
    try:
        return next(csv.reader([line.decode("utf-8")]), [])
    except (ValueError, csv.Error):
        return None
