"""Run the laws on the components of a file: causality, caches, padding, kernels, gradients, ...
Exit code 1 if a component breaks a law, 2 if one cannot be registered.
"""

from collections import Counter
from typing import Any

from tasks.cli.command import console, import_files, output, say_wrapped, styled, table

SUMMARY = "run the laws on components of your own"
EXAMPLES = """examples:
  xformer check my_components.py
  xformer check my_components.py --json"""
OPTIONS = {
    "file FILE": "a Python file that registers components",
    "--json": "print plain data",
}
MARKS = {"ok": ("ok", "green"), "broken": ("BROKEN", "bold red"), "skipped": ("skipped", "dim")}


def run(args: Any) -> int:
    from xformer_kit.laws import check_file
    from xformer_kit.laws.checking import REGISTERS

    import_files(args.components)
    names = "component", "law", "verdict", "sentence"
    results = [dict(zip(names, map(str, one), strict=True)) for one in check_file(args.file)]
    broken = {result["law"] for result in results if result["verdict"] == "broken"}
    code = 2 if REGISTERS in broken else int(bool(broken))
    return output(args, results, _show, results, args.file) or code


def _show(results: list[dict[str, str]], file: str) -> None:
    screen = console()
    page = table("component", "law", "", "what was seen", padding=(0, 2, 0, 0))
    for column in page.columns[:3]:
        column.no_wrap = True
    page.columns[0].style = "bold"
    last = None
    for component, law, verdict, sentence in (result.values() for result in results):
        page.add_row("" if component == last else component, law, styled(*MARKS[verdict]), sentence)
        last = component
    screen.print(page)
    screen.print()
    count = Counter(result["verdict"] for result in results)
    held, broken = count["ok"], count["broken"]
    text = f"{file}: {held} held, {broken} broken, {count.total() - held - broken} skipped."
    say_wrapped(screen, (text, "bold red" if broken else "bold green"))
