"""The report of a study: written into its directory, and its answer on the terminal."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.study.collect import results
from xformer_kit.study.results import Results

MOST = 20  # sentences on the terminal
NEEDED = ("scipy", "matplotlib", "jinja2")


def report(folder: Path) -> Results:
    """`written`, for whoever needs the results alone."""
    return written(folder)[0]


def written(folder: Path) -> tuple[Results, Any]:
    """The results, and what the report says of them, None without the extra `study`.

    Write report.html, report.md, runs.csv, variants.csv, and of a ladder laws.csv, each beside and
    renamed, so that one that is there is whole. Without the extra it says so, and writes nothing.
    Raises ConfigError where the directory holds no study, or where its metric or its claim is at
    fault.
    """
    found = results(folder)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        print(
            f'A report needs {" and ".join(missing)}: pip install "xformer_kit[study]". The runs'
            " are kept; start the study again for its report.",
            file=sys.stderr,
        )
        return found, None
    from xformer_kit.study import stop
    from xformer_kit.study.report import csv_files
    from xformer_kit.study.report.content import content
    from xformer_kit.study.report.html import html
    from xformer_kit.study.report.markdown import markdown

    found = stop.applied(found)
    said = content(found)
    pages = {
        "report.html": html(said),
        "report.md": markdown(said),
        "runs.csv": csv_files.runs(found),
        "variants.csv": csv_files.variants(said),
    }
    if said.laws:
        pages["laws.csv"] = csv_files.laws(said.laws)
    for name, text in pages.items():
        _write(folder / name, text)
    _show(said, folder / "report.html")
    return found, said


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8", newline="")
    os.replace(beside, path)


def _show(said: Any, path: Path) -> None:
    """Question, answer, a sentence for each variant, and where the rest is."""
    from rich.text import Text

    from tasks.logging.console import screen

    console = screen()
    console.print()
    console.print(Text(said.question, style="bold"))
    if said.partial:
        console.print(Text(said.partial, style="yellow"))
    console.print(Text(said.sentence))
    if said.claim:
        console.print(Text(said.claimed))
    console.print()
    for sentence in said.sentences[:MOST]:
        console.print(Text(f"- {sentence}"))
    if (more := len(said.sentences) - MOST) > 0:
        console.print(Text(f"- and {more} others, in the report"))
    console.print()
    if said.search:
        found = (
            said.search.found,
            said.search.confirmed(said.arms, said.metric),
            said.search.sentence,
        )
        console.print(Text("".join(f"{sentence}\n" for sentence in found if sentence)))
    console.print(Text.assemble(("Report  ", "dim"), str(path)), soft_wrap=True)
