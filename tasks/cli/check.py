"""Run the laws on the parts of a file: causality, caches, padding, kernels, gradients, ... Exit 1:
one broke.
"""

from typing import Any

from tasks.cli.command import console, import_files, print_json, say, table

SUMMARY = "run the laws on parts of your own"
EXAMPLES = """examples:
  xformer check my_parts.py
  xformer check my_parts.py --json"""
OPTIONS = {
    "file FILE": "a Python file that registers parts",
    "--json": "print plain data",
}
MARKS = {"ok": ("ok", "green"), "broken": ("BROKEN", "bold red"), "skipped": ("skipped", "dim")}


def run(args: Any) -> int:
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
    from rich.text import Text

    screen = console()
    page = table("part", "law", "", "what was seen", padding=(0, 2, 0, 0))
    for column in page.columns[:3]:
        column.no_wrap = True
    last = None
    for result in results:
        mark, style = MARKS[result["verdict"]]
        part = "" if result["part"] == last else result["part"]
        last = result["part"]
        page.add_row(Text(part, "bold"), result["law"], Text(mark, style), result["sentence"])
    screen.print(page)
    screen.print()
    held = sum(result["verdict"] == "ok" for result in results)
    left = len(results) - held - len(broken)
    counts = f"{file}: {held} held, {len(broken)} broken, {left} skipped."
    say(screen, (counts, "bold red" if broken else "bold green"), soft_wrap=False)
