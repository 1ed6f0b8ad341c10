"""Show the progress of a study: for each variant, how many of its runs finished, diverged, failed,
are running or have not started; why runs failed; and the command to continue. A study that is
running is not disturbed.
"""

from collections.abc import Iterator
from typing import Any

from tasks import State
from tasks.cli.command import console, output, say, say_wrapped, study_folder, styled, table
from xformer_kit.registry.messages import first_line

SUMMARY = "how far a study is, what failed, and how to go on"
EXAMPLES = """examples:
  xformer status norm_placement
  xformer status outputs/studies/norm_placement --json"""
OPTIONS = {
    "study STUDY": "a study's directory, or its name under outputs/studies",
    "--json": "print plain data",
}
STYLE = {"diverged": "red", "failed": "red", "running": "cyan", "stopped": "yellow"}


def run(args: Any) -> int:
    from tasks.study.progress import progress

    found = progress(study_folder(args.study))
    return output(args, found, _show, found)


def _show(found: State) -> None:
    screen, counts = console(), found["counts"]
    say_wrapped(screen, (found["study"], "bold"), (f"  {found['question']}", "dim"))
    shown = [status for status, count in counts.items() if count or status == "finished"]
    others = (f"{counts[status]} {status}" for status in shown if status != "finished")
    done = f"{counts['finished']} of {len(found['runs'])} runs finished"
    say(screen, (", ".join((done, *others, found["folder"])), "dim"))
    numbers = (*shown, "runs")
    page = table("variant", *numbers, right=numbers)
    for variant in found["variants"]:
        cells = (
            styled(str(variant[s] or "."), STYLE.get(s, "") if variant[s] else "dim") for s in shown
        )
        page.add_row(variant["name"], *cells, str(variant["runs"]))
    screen.print()
    screen.print(page)
    if lines := list(_remarks(found["runs"])):
        screen.print()
    for line in lines:
        say(screen, line)
    for what, key in (("Go on", "go_on"), ("Run those again that failed or diverged", "retry")):
        if found[key]:
            say(screen, (f"\n{what}:  ", "dim"), (found[key], "bold"))


def _remarks(runs: list[State]) -> Iterator[tuple[str, str]]:
    """A line, with its style, on each run that is neither finished nor still to begin."""
    for run in runs:
        if (status := run["status"]) in STYLE:
            line = f"{run['variant']} seed {run['seed']}: {status}"
            line += "" if status == "failed" else f" at step {run['step'] or 0:,}"
            going = status in ("running", "stopped")
            line += f" of {run['steps']:,}" if going else f": {first_line(run['why'])}"
            yield line, STYLE[status]
