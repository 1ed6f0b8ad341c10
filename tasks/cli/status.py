"""How far is a study? For each variant, how many of its runs finished, diverged, failed, are under
way or have not begun; why those that failed did so; and what to type to go on. A study that is at
work is not disturbed.
"""

from collections.abc import Iterator
from typing import Any

from tasks.cli.command import console, print_json, study_folder
from xformer_kit.registry.messages import first_line

SUMMARY = "how far a study is, what failed, and how to go on"
EXAMPLES = """examples:
  xformer status norm_placement
  xformer status outputs/studies/norm_placement --json"""
STYLE = {"diverged": "red", "failed": "red", "running": "cyan", "stopped": "yellow"}


def options(parser: Any) -> None:
    parser.add_argument(
        "study", metavar="STUDY", help="a study's directory, or its name under outputs/studies"
    )
    parser.add_argument("--json", action="store_true", help="print plain data")


def run(args: Any) -> int:
    from tasks.study.progress import progress

    found = progress(study_folder(args.study))
    if args.json:
        print_json(found)
    else:
        _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    done, every = found["counts"]["finished"], len(found["runs"])
    screen.print(Text.assemble((found["study"], "bold"), (f"  {found['question']}", "dim")))
    others = [
        f"{count} {status}"
        for status, count in found["counts"].items()
        if count and status != "finished"
    ]
    said = ", ".join((f"{done} of {every} runs finished", *others, found["folder"]))
    screen.print(Text(said, "dim"), soft_wrap=True)
    shown = [status for status, count in found["counts"].items() if count or status == "finished"]
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("variant", overflow="fold")
    for status in (*shown, "runs"):
        table.add_column(status, justify="right")
    for variant in found["variants"]:
        cells = [
            Text(str(variant[s] or "."), STYLE.get(s, "") if variant[s] else "dim") for s in shown
        ]
        table.add_row(variant["name"], *cells, str(variant["runs"]))
    screen.print()
    screen.print(table)
    if lines := list(_remarks(found["runs"])):
        screen.print()
    for line, style in lines:
        screen.print(Text(line, style), soft_wrap=True)
    for what, key in (("Go on", "go_on"), ("Run those again that failed or diverged", "retry")):
        if found[key]:
            screen.print(
                Text.assemble((f"\n{what}:  ", "dim"), (found[key], "bold")), soft_wrap=True
            )


def _remarks(runs: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """A line, with its style, on each run that is neither finished nor still to begin."""
    for run in runs:
        name, status = f"{run['variant']} seed {run['seed']}", run["status"]
        if status == "failed":
            yield f"{name}: failed: {first_line(run['why'])}", "red"
        elif status == "diverged":
            yield f"{name}: diverged at step {run['step']:,}: {first_line(run['why'])}", "red"
        elif status in ("running", "stopped"):
            yield (
                f"{name}: {status} at step {run['step'] or 0:,} of {run['steps']:,}",
                STYLE[status],
            )
