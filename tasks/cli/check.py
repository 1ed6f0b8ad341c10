"""Run the laws on the parts of a file: causality, caches, padding, kernels, gradients, ... Exit 1:
one broke.
"""

from typing import Any

from tasks.cli.command import console, print_json

SUMMARY = "run the laws on parts of your own"
EXAMPLES = """examples:
  xformer check my_parts.py
  xformer check my_parts.py --json"""
MARKS = {"ok": ("ok", "green"), "broken": ("BROKEN", "bold red"), "skipped": ("skipped", "dim")}


def options(parser: Any) -> None:
    parser.add_argument("file", metavar="FILE", help="a Python file that registers parts")
    parser.add_argument("--json", action="store_true", help="print plain data")


def run(args: Any) -> int:
    from tasks.cli.command import import_files
    from xformer_kit.laws import check_file

    import_files(args.parts)
    results = [_plain(result) for result in check_file(args.file)]
    broken = [result for result in results if result["verdict"] == "broken"]
    if args.json:
        print_json(results)
    else:
        _show(results, broken, args.file)
    return 1 if broken else 0


def _plain(result: Any) -> dict[str, str]:
    part, law, verdict, sentence = result
    return {"part": str(part), "law": str(law), "verdict": str(verdict), "sentence": str(sentence)}


def _show(results: list[dict[str, str]], broken: list[dict[str, str]], file: str) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("part", "law", "", "what was seen"):
        table.add_column(heading, no_wrap=heading != "what was seen", overflow="fold")
    last = None
    for result in results:
        mark, style = MARKS[result["verdict"]]
        part = "" if result["part"] == last else result["part"]
        last = result["part"]
        table.add_row(
            Text(part, "bold"), Text(result["law"]), Text(mark, style), Text(result["sentence"])
        )
    screen.print(table)
    screen.print()
    held = sum(result["verdict"] == "ok" for result in results)
    left = len(results) - held - len(broken)
    said = f"{held} held, {len(broken)} broken, {left} skipped"
    screen.print(Text(f"{file}: {said}.", "bold red" if broken else "bold green"))
