"""Run the laws on the components of a file: causality, caches, padding, kernels, gradients, ...
Exit code 1 if a component breaks a law, 2 if one cannot be registered.
"""

from collections import Counter
from typing import Any

from tasks.cli.command import console, import_files, print_result, print_wrapped, table

SUMMARY = "run the laws on components of your own"
EXAMPLES = """examples:
  xformer check my_components.py
  xformer check my_components.py --json"""
OPTIONS = {
    "file FILE": "a Python file that registers components",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.laws import check_file
    from xformer_kit.laws.checking import REGISTERS

    import_files(args.components)
    keys = "component", "law", "verdict", "sentence"
    results = [dict(zip(keys, map(str, row), strict=True)) for row in check_file(args.file)]
    broken = {result["law"] for result in results if result["verdict"] == "broken"}
    code = 2 if REGISTERS in broken else int(bool(broken))
    return print_result(args, results, _print, results, args.file) or code


def _print(results: list[dict[str, str]], file: str) -> None:
    rows = (result.values() for result in results)
    headings = "component", "law", "", "result"
    console().print(table(rows, headings, styles=("bold",), no_wrap=range(3)))
    print()
    count = Counter(result["verdict"] for result in results)
    held, broken = count["ok"], count["broken"]
    text = f"{file}: {held} held, {broken} broken, {count.total() - held - broken} skipped."
    print_wrapped((text, "bold red" if broken else "bold green"))
