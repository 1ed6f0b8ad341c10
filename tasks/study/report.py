"""Writes the report of a study into its directory, and prints its answer."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from tasks.logging.console import create_console
from tasks.logging.files import replace_text
from tasks.study.collect import results
from xformer_kit.study.results import Results

MAX_SENTENCES = 20  # on the terminal
PACKAGES = ("scipy", "matplotlib", "jinja2")


def report(folder: Path) -> Results:
    """Writes the report and returns the results."""
    return write_report(folder)[0]


def write_report(folder: Path) -> tuple[Results, Any]:
    """Writes report.html, report.md, runs.csv, variants.csv, and for a ladder laws.csv, each
    atomically. Returns the results and the content of the report.

    Without the packages of the extra `study` it prints a message, writes nothing, and the content
    is None. Raises ConfigError if the directory is no study, or for a faulty metric or claim.
    """
    study_results = results(folder)
    if not has_packages():
        return study_results, None
    from xformer_kit.study import stop

    study_results = stop.apply_stopping_rule(study_results)
    return study_results, write_content(folder, study_results)


def has_packages() -> bool:
    """Whether the packages of the extra `study` are there; prints a message if not."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(
            f'A report needs {" and ".join(missing)}: pip install "xformer_kit[study]". The runs'
            " are kept; start the study again for its report.",
            file=sys.stderr,
        )
    return not missing


def write_content(folder: Path, study_results: Results) -> Any:
    """Writes the report of results into a directory, and prints its answer; returns the content."""
    from xformer_kit.study.report.content import content

    values = content(study_results)
    page = write_files(folder, study_results, values)
    show(page, values.search.sentences if values.search else [], folder / "report.html")
    return values


def write_files(folder: Path, study_results: Results, values: Any) -> Any:
    """Writes the files of a report with this content into a directory; returns the document."""
    from xformer_kit.study.report import csv_files
    from xformer_kit.study.report.html import html
    from xformer_kit.study.report.markdown import markdown
    from xformer_kit.study.report.sections import document

    page = document(values)
    files = {
        "report.html": html(page),
        "report.md": markdown(page),
        "runs.csv": csv_files.runs(study_results),
        "variants.csv": csv_files.variants(values),
    }
    if values.laws:
        files["laws.csv"] = csv_files.laws(values.laws)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        replace_text(folder / name, text)
    return page


def show(page: Any, search: list[str], path: Path | None) -> None:
    """Prints the title, a notice if the report is partial, the answer, a sentence for each of at
    most MAX_SENTENCES variants, the sentences about a search, and the path of the report if there
    is one.
    """
    console = create_console()
    texts = [Text(), Text(page.title, style="bold")]
    if page.hardly_trained:
        texts.append(Text(page.hardly_trained, style="yellow"))
    if page.partial:
        texts.append(Text(page.partial, style="yellow"))
    texts += map(Text, filter(None, (page.answer, page.claim)))
    sentences = [f"- {sentence}" for _, sentence in page.verdicts[:MAX_SENTENCES]]
    if (more := len(page.verdicts) - MAX_SENTENCES) > 0:
        sentences.append(f"- and {more} others, in the report")
    texts += map(Text, ["", *sentences, ""])
    if search:
        texts += map(Text, [*search, ""])
    console.print(Group(*texts))
    if path is not None:
        console.print(Text.assemble(("Report  ", "dim"), str(path)), soft_wrap=True)
