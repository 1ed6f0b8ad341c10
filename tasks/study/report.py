"""Writes the report of a study into its directory, and prints its answer."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from tasks.logging.console import screen
from tasks.logging.files import replace_text
from tasks.study.collect import results
from xformer_kit.study.results import Results

MAX_SENTENCES = 20  # on the terminal
REQUIRED = ("scipy", "matplotlib", "jinja2")


def report(folder: Path) -> Results:
    """Writes the report and returns the results."""
    return write_report(folder)[0]


def write_report(folder: Path) -> tuple[Results, Any]:
    """Writes report.html, report.md, runs.csv, variants.csv, and for a ladder laws.csv, each
    atomically. Returns the results and the content of the report.

    Without the packages of the extra `study` it prints a message, writes nothing, and the content
    is None. Raises ConfigError if the directory is no study, or for a faulty metric or claim.
    """
    found = results(folder)
    if missing := [name for name in REQUIRED if find_spec(name) is None]:
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
    from xformer_kit.study.report.sections import document

    found = stop.applied(found)
    values = content(found)
    page = document(values)
    files = {
        "report.html": html(page),
        "report.md": markdown(page),
        "runs.csv": csv_files.runs(found),
        "variants.csv": csv_files.variants(values),
    }
    if values.laws:
        files["laws.csv"] = csv_files.laws(values.laws)
    for name, text in files.items():
        replace_text(folder / name, text)
    _show(page, values.search.sentences if values.search else [], folder / "report.html")
    return found, values


def _show(page: Any, search: list[str], path: Path) -> None:
    """Prints the question, the answer, a sentence for each variant, and the path of the report."""
    console = screen()
    console.print()
    console.print(Text(page.title, style="bold"))
    if page.partial:
        console.print(Text(page.partial, style="yellow"))
    for text in filter(None, (page.answer, page.claim)):
        console.print(Text(text))
    console.print()
    for _, sentence in page.verdicts[:MAX_SENTENCES]:
        console.print(Text(f"- {sentence}"))
    if (more := len(page.verdicts) - MAX_SENTENCES) > 0:
        console.print(Text(f"- and {more} others, in the report"))
    console.print()
    if search:
        console.print(Text("".join(f"{sentence}\n" for sentence in search)))
    console.print(Text.assemble(("Report  ", "dim"), str(path)), soft_wrap=True)
