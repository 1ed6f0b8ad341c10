"""Writes the table of a multirun's jobs, sorted by validation loss, and prints it."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from tasks import State
from tasks.logging import summary
from tasks.logging.console import create_console
from xformer_kit.config import read_config
from xformer_kit.config.saved.difference import as_literal, differing, flat
from xformer_kit.metrics import VAL_LOSS, of_split
from xformer_kit.registry import ConfigError
from xformer_kit.study.numbers import compact
from xformer_kit.text.command_lines import resume
from xformer_kit.text.printable import cell

RESULTS = (
    *of_split(dict.fromkeys(("loss", "bits_per_byte", "perplexity", "exact_match"))),
    *("params", "tokens_per_second"),
)
# Column of sweep.csv -> its heading on the terminal.
HEADINGS = of_split(
    {"loss": "val loss", "bits_per_byte": "bits/byte", "exact_match": "exact match"}
)


def write_sweep_table(sweep_dir: Path, components: Sequence[str] = ()) -> int:
    """Write sweep.csv and print the table of a multirun; returns 0, or 1 if a job did not finish.
    components: files given on the command line.
    """
    rows, paths = job_rows(sweep_dir)
    if not rows:
        print(f"No job ran in {sweep_dir}.")
        return 1
    columns = ["job", *paths, "status", *RESULTS]
    with open(sweep_dir / "sweep.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(cell, columns))
        writer.writerows([cell(row.get(key, "")) for key in columns] for row in rows)
    _print(rows, paths, sweep_dir, components)
    return 0 if all(row["status"] == "finished" for row in rows) else 1


def job_rows(sweep_dir: Path) -> tuple[list[State], list[str]]:
    """Returns one row per job, the best first and unfinished ones last, and the config paths in
    which the jobs differ.
    """
    configs, rows = {}, []
    directories = (path for path in sweep_dir.iterdir() if path.is_dir())
    for directory in sorted(directories, key=lambda path: (len(path.name), path.name)):
        try:
            configs[directory.name] = dict(flat(read_config(directory)))
        except ConfigError:
            continue
        results, ended = summary.read(directory), summary.read(directory, summary.ENDED)
        stopped = ended is not None and ended["code"] > 128  # by a signal, after saving
        status = "finished" if results else "stopped" if stopped else "failed"
        row: State = {"job": directory.name, "status": status}
        rows.append(row | {name: results[name] for name in RESULTS if results and name in results})
    paths = differing(list(configs.values()))
    for row in rows:
        row |= {path: as_literal(configs[row["job"]].get(path, "")) for path in paths}
    order = lambda row: (row["status"] != "finished", row.get(VAL_LOSS, math.inf))
    return sorted(rows, key=order), paths


def _print(rows: list[State], paths: list[str], sweep_dir: Path, components: Sequence[str]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    metrics = [name for name in HEADINGS if any(name in row for row in rows)]
    for name in ("job", *paths, *(HEADINGS[name] for name in metrics), "parameters", "tokens/s"):
        table.add_column(
            name.removesuffix(".name"),
            justify="left" if name in paths else "right",
            overflow="fold",
        )
    for row in rows:
        cells = [row["status"]]
        if row["status"] == "finished":
            speed = row["tokens_per_second"]
            cells = [f"{row[name]:.4f}" if name in row else "" for name in metrics]
            cells += [compact(row["params"]), compact(speed) if speed else "-"]
        table.add_row(*(str(row[key]) for key in ("job", *paths)), *cells)
    console = create_console()
    if not console.is_terminal:
        console = create_console(width=10_000)
    console.print()
    console.print(table)
    if lines := [*over_seeds(rows, paths)]:
        console.print("", *lines, sep="\n", soft_wrap=True)
    for line in unfinished_messages(rows, sweep_dir, components):
        console.print(f"\n{line}", style="yellow", soft_wrap=True)
    console.print(f"\n{sweep_dir}/sweep.csv", style="dim", soft_wrap=True)


def over_seeds(rows: list[State], paths: Sequence[str]) -> Iterable[str]:
    """Yields the mean and the standard deviation of the validation loss of each setting that ran
    with several seeds, the best first.
    """
    losses: dict[str, list[float]] = {}
    for row in rows if "seed" in paths else ():
        if row["status"] == "finished" and math.isfinite(row.get(VAL_LOSS, math.nan)):
            options = (
                f"{path.removesuffix('.name')}={row[path]}" for path in paths if path != "seed"
            )
            losses.setdefault(", ".join(options), []).append(row[VAL_LOSS])
    several = {setting: values for setting, values in losses.items() if len(values) > 1}
    for setting, values in sorted(several.items(), key=lambda item: fmean(item[1])):
        yield (
            f"{setting}: val loss {fmean(values):.4f} +- {stdev(values):.4f} (standard deviation),"
            f" {len(values)} seeds"
        ).removeprefix(": ")


def unfinished_messages(
    rows: list[State], sweep_dir: Path, components: Sequence[str] = ()
) -> Iterable[str]:
    """Yields a message on each job that failed or was stopped."""
    for row in rows:
        run_dir = sweep_dir / row["job"]
        if row["status"] == "failed":
            yield f"Job {row['job']} failed; why: {run_dir / 'train.log'}"
        elif row["status"] == "stopped":
            yield f"Job {row['job']} was stopped. Go on with: {resume(run_dir, components)}"
