"""Renders a report as Markdown: sentences and tables; figures are in the HTML file."""

import re
from collections.abc import Iterator

from xformer_kit.study.report.document import Document, Section, Table

MARKUP = re.compile(r"[\\`*\[\]|<>&]|(?<!\w)_|_(?!\w)")
HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(document: Document) -> str:
    return "\n\n".join(_page(document)) + "\n"


def _page(document: Document) -> Iterator[str]:
    yield f"# {plain(document.title)}"
    yield f"{plain(document.subtitle)}."
    if document.partial:
        yield f"**{plain(document.partial)}**"
    yield f"**{plain(document.answer)}**"
    paper, link = plain(document.paper), document.address
    if link:
        paper = f"[{paper}]({link})"
    if document.claim:
        yield f"Claim ({paper}): {plain(document.claim)}"
    elif paper:
        yield f"Paper: {paper}."
    yield "\n".join(f"- {plain(sentence)}" for _, sentence in document.verdicts)
    for section in document.sections:
        if section.text or section.tables or section.commands or section.quotes:
            yield from _section(section)
    yield (
        "Figures are in [report.html](report.html), all values are in [runs.csv](runs.csv) and"
        " [variants.csv](variants.csv)."
    )


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    yield from map(plain, section.text)
    yield from map(fenced, section.commands)
    for table in section.tables:
        yield from _table(table, titled=table.title != section.title)
    for title, text in section.quotes:
        yield f"**{plain(title)}**"
        yield fenced(text)


def _table(table: Table, titled: bool) -> Iterator[str]:
    if titled:
        yield f"### {table.title}"
    rule = ["---:" if table.numeric(i) else "---" for i in range(len(table.header))]
    rows = [table.header, rule, *table.rows]
    yield "\n".join("| " + " | ".join(map(plain, row)) + " |" for row in rows)
    if table.note:
        yield plain(table.note)


def plain(text: str) -> str:
    """Text on one line, with all Markdown and HTML characters escaped."""
    return MARKUP.sub(lambda m: HTML.get(m[0], f"\\{m[0]}"), " ".join(text.split()))


def fenced(text: str) -> str:
    """Text in a code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
