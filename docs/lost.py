"""Is every line of a page's Markdown on the page? Letters and digits are compared; Markdown's own
signs are not text.
"""

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# What is kept as it is: a fence, a span of code. What is removed: a picture, the target of a link,
# an element of HTML.
PIECES = re.compile(
    r"^(?P<fence>```+|~~~+)(?P<info>.*)\n(?P<code>(?:.*\n)*?)(?P=fence)$"
    r"|(?P<ticks>`+)(?P<span>[^`]+)(?P=ticks)"
    r"|!\[[^\]]*\]\([^)\s]*\)|\]\([^)\s]*\)|</?(?:a|br|code|div|fig\w+|img|p|su[bp]|t\w+)\b[^<>]*>|<!--(?:.|\n)*?-->",
    re.MULTILINE,
)
FRONT = re.compile(r"\A---\n(?:.*\n)*?---\n")
MARKER = re.compile(r"^\s*(?:\d+\.|[-*+]|#+)\s")


class Words(HTMLParser):
    """The letters and digits that a reader sees of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.pieces: list[str] = []
        self.feed(text)
        self.text = letters("".join(self.pieces))

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def lost(pages: Path, site: Path) -> list[str]:
    """Every line of the pages' Markdown that the site does not show, one sentence each."""
    return [
        f"{source.relative_to(pages)}:{number}: is not on the page: {line.strip()[:80]}"
        for source in sorted(pages.rglob("*.md"))
        if (page := (site / source.relative_to(pages)).with_suffix(".html")).is_file()
        for number, line in _missing(
            source.read_text(encoding="utf-8"), Words(page.read_text(encoding="utf-8")).text
        )
    ]


def letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


def _missing(source: str, shown: str) -> Iterator[tuple[int, str]]:
    """(number, line), from 1 on."""
    text = PIECES.sub(_read, FRONT.sub(lambda match: "\n" * match[0].count("\n"), source))
    for number, (line, given) in enumerate(
        zip(text.split("\n"), source.split("\n"), strict=True), 1
    ):
        if letters(html.unescape(MARKER.sub("", line))) not in shown:
            yield number, given


def _read(match: re.Match[str]) -> str:
    """What a reader sees of a piece, on as many lines."""
    if match["fence"]:
        kept = "" if match["info"].startswith("{") else match["code"]
        return "\n" + (kept or "\n" * match["code"].count("\n"))
    return match["span"] or "\n" * match[0].count("\n")
