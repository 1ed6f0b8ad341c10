"""Renders a report as Markdown: sentences and tables; figures are in the HTML file."""

import re

from xformer_kit.study.report.document import Document
from xformer_kit.study.report.templates import render

MARKUP = re.compile(r"[\\`*\[\]|<>&]|(?<!\w)_|_(?!\w)")
HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(document: Document) -> str:
    return render("page.md.j2", document, {"plain": plain, "fenced": fenced}) + "\n"


def plain(text: str) -> str:
    """Text on one line, with all Markdown and HTML characters escaped."""
    return MARKUP.sub(lambda m: HTML.get(m[0], f"\\{m[0]}"), " ".join(text.split()))


def fenced(text: str) -> str:
    """Text in a code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
