"""The jobs of a multirun, sorted by validation loss: a table on the screen and sweep.csv."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from tasks import State
from tasks.logging import summary
from tasks.logging.bar import compact
from tasks.logging.console import screen
from xformer_kit.config import read_config
from xformer_kit.config.difference import as_literal, differing, flat
from xformer_kit.registry import ConfigError
from xformer_kit.registry.command_lines import resume
from xformer_kit.registry.printable import cell

RESULTS = (
    "val/loss",
    "val/bits_per_byte",
    "val/perplexity",
    "val/exact_match",
    "params",
    "tokens_per_second",
)
STYLES = {"failed": "red", "stopped": "yellow"}
SHOWN = {"val/loss": "val loss", "val/bits_per_byte": "bits/byte", "val/exact_match": "exact match"}


def finish(sweep_dir: Path, components: Sequence[str] = ()) -> int:
    """Write and show the table of a multirun; returns 0, or 1 if a job did not finish.
    `components`: files given on the command line.
    """
    rows, paths = table(sweep_dir)
    if not rows:
        print(f"No job ran in {sweep_dir}.")
        return 1
    with open(sweep_dir / "sweep.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["job", *paths, "status", *RESULTS])
        writer.writerow({key: cell(key) for key in writer.fieldnames})
        writer.writerows({key: cell(row.get(key, "")) for key in writer.fieldnames} for row in rows)
    _show(rows, paths, sweep_dir, components)
    return 0 if all(row["status"] == "finished" for row in rows) else 1


def table(sweep_dir: Path) -> tuple[list[State], list[str]]:
    """One row per job, best first, those that did not finish last; and the config paths in which
    the jobs differ.
    """
    configs, rows = {}, []
    folders = (path for path in sweep_dir.iterdir() if path.is_dir())
    for folder in sorted(folders, key=lambda path: (len(path.name), path.name)):
        try:
            configs[folder.name] = dict(flat(read_config(folder)))
        except ConfigError:
            continue
        done, ended = summary.read(folder), summary.read(folder, summary.ENDED)
        stopped = ended is not None and ended["code"] > 128  # by a signal, after saving
        status = "finished" if done else "stopped" if stopped else "failed"
        row: State = {"job": folder.name, "status": status}
        rows.append(row | {name: done[name] for name in RESULTS if done and name in done})
    paths = differing(list(configs.values()))
    for row in rows:
        row |= {path: as_literal(configs[row["job"]].get(path, "")) for path in paths}
    best_first = lambda row: (row["status"] != "finished", row.get("val/loss", math.inf))
    return sorted(rows, key=best_first), paths


def _show(rows: list[State], paths: list[str], sweep_dir: Path, components: Sequence[str]) -> None:
    from rich.table import Table

    shown = Table(box=None, header_style="dim", pad_edge=False)
    measured = [name for name in SHOWN if any(name in row for row in rows)]
    for name in ("job", *paths, *(SHOWN[name] for name in measured), "parameters", "tokens/s"):
        shown.add_column(
            name.removesuffix(".name"),
            justify="left" if name in paths else "right",
            overflow="fold",
        )
    for row in rows:
        values = [row["status"]]
        if row["status"] == "finished":
            speed = row["tokens_per_second"]
            values = [f"{row[name]:.4f}" if name in row else "" for name in measured]
            values += [compact(row["params"]), compact(speed) if speed else "-"]
        best = "bold" if row is rows[0] else None
        named = (str(row[key]) for key in ("job", *paths))
        shown.add_row(*named, *values, style=STYLES.get(row["status"], best))
    console = screen()
    if not console.is_terminal:  # a file has no edge
        console = screen(width=10_000)
    console.print()
    console.print(shown)
    for line in endings(rows, sweep_dir, components):
        console.print(f"\n{line}", style="red" if "failed" in line else "yellow", soft_wrap=True)
    console.print(f"\n{sweep_dir}/sweep.csv", style="dim", soft_wrap=True)


def endings(rows: list[State], sweep_dir: Path, components: Sequence[str] = ()) -> Iterable[str]:
    """A message on the jobs that failed, and one on each job that was stopped."""
    of = {status: [row["job"] for row in rows if row["status"] == status] for status in STYLES}
    if failed := of["failed"]:
        logs = ", ".join(str(sweep_dir / job / "train.log") for job in failed)
        yield f"Job{'s' * (len(failed) > 1)} {', '.join(failed)} failed; why: {logs}"
    for job in of["stopped"]:
        way = resume(sweep_dir / job, components)
        yield f"Job {job} was stopped. Go on with: {way}"
