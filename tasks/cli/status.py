"""Show the progress of a study: for each variant, how many of its runs finished, diverged, failed,
are running or have not started; why runs failed; and the command to continue. It only reads, so it
can be used while the study is running.
"""

from collections.abc import Iterator
from typing import Any

from tasks import State
from tasks.cli.command import (
    console,
    print_line,
    print_result,
    print_wrapped,
    study_directory,
    table,
)
from xformer_kit.registry.messages import first_line

SUMMARY = "the progress of a study, what failed, and how to continue"
EXAMPLES = """examples:
  xformer status norm_placement
  xformer status outputs/studies/norm_placement --json"""
OPTIONS = {
    "study STUDY": "a study's directory, or its name under outputs/studies",
    "--json": "print plain data",
}
STYLES = {"diverged": "red", "failed": "red", "running": "cyan", "stopped": "yellow"}


def run(args: Any) -> int:
    from tasks.study.progress import progress

    data = progress(study_directory(args.study))
    return print_result(args, data, _print, data)


def _print(data: State) -> None:
    counts = data["counts"]
    print_wrapped((data["study"], "bold"), (f"  {data['question']}", "dim"))
    shown = [status for status, count in counts.items() if count or status == "finished"]
    others = (f"{counts[status]} {_name(status)}" for status in shown if status != "finished")
    finished = f"{counts['finished']} of {len(data['runs'])} runs finished"
    print_line((", ".join((finished, *others, data["folder"])), "dim"))

    rows = (
        (variant["name"], *(str(variant[status] or ".") for status in (*shown, "runs")))
        for variant in data["variants"]
    )
    print()
    console().print(
        table(rows, ("variant", *map(_name, shown), "runs"), right=range(1, len(shown) + 2))
    )
    if lines := list(_run_lines(data["runs"])):
        print()
    for line in lines:
        print_line(line)
    for purpose, key in (("Go on", "go_on"), ("Run those again that failed or diverged", "retry")):
        if data[key]:
            print_line((f"\n{purpose}:  ", "dim"), (data[key], "bold"))


def _name(status: str) -> str:
    from xformer_kit.study.results import STATUS_NAMES  # imports torch

    return STATUS_NAMES.get(status, status)


def _run_lines(runs: list[State]) -> Iterator[tuple[str, str]]:
    """Yields (line, style) per run that has started and not finished."""
    for run in runs:
        if (status := run["status"]) in STYLES:
            line = f"{run['variant']} seed {run['seed']}: {_name(status)}"
            line += "" if status == "failed" else f" at step {run['step'] or 0:,}"
            continues = status in ("running", "stopped")
            line += f" of {run['steps']:,}" if continues else f": {first_line(run['why'])}"
            yield line, STYLES[status]
