"""Finds lines of Markdown whose text is missing on the rendered page. Only letters and digits are
compared, since Markdown's signs are not text.
"""

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# Kept: fenced code, code spans. Removed: pictures, targets of links, HTML elements.
PIECES = re.compile(
    r"^(?P<fence>```+|~~~+)(?P<info>.*)\n(?P<code>(?:.*\n)*?)(?P=fence)$"
    r"|(?P<ticks>`+)(?P<span>[^`]+)(?P=ticks)"
    r"|!\[[^\]]*\]\([^)\s]*\)|\]\([^)\s]*\)|</?(?:a|br|code|div|fig\w+|img|p|su[bp]|t\w+)\b[^<>]*>|<!--(?:.|\n)*?-->",
    re.MULTILINE,
)
FRONT = re.compile(r"\A---\n(?:.*\n)*?---\n")
MARKER = re.compile(r"^\s*(?:\d+\.|[-*+]|#+)\s")


class Words(HTMLParser):
    """The letters and digits of the visible text of an HTML page."""

    def __init__(self, text: str):
        super().__init__()
        self.pieces: list[str] = []
        self.feed(text)
        self.text = letters("".join(self.pieces))

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def lost_lines(pages: Path, site: Path) -> list[str]:
    """Returns a sentence per line of the pages' Markdown that the site lacks."""
    return [
        f"{source.relative_to(pages)}:{number}: is missing on the page: {line.strip()[:80]}"
        for source in sorted(pages.rglob("*.md"))
        if (page := (site / source.relative_to(pages)).with_suffix(".html")).is_file()
        for number, line in _missing(
            source.read_text(encoding="utf-8"), Words(page.read_text(encoding="utf-8")).text
        )
    ]


def letters(text: str) -> str:
    """Returns the letters and digits of a text."""
    return re.sub(r"[\W_]+", "", text)


def _missing(source: str, visible: str) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of each line whose text is not in `visible`."""
    text = PIECES.sub(_visible, FRONT.sub(lambda match: "\n" * match[0].count("\n"), source))
    for number, (line, original) in enumerate(
        zip(text.split("\n"), source.split("\n"), strict=True), 1
    ):
        if letters(html.unescape(MARKER.sub("", line))) not in visible:
            yield number, original


def _visible(match: re.Match[str]) -> str:
    """Returns the visible text of a piece of Markdown, with as many line breaks."""
    if match["fence"]:
        kept = "" if match["info"].startswith("{") else match["code"]
        return "\n" + (kept or "\n" * match["code"].count("\n"))
    return match["span"] or "\n" * match[0].count("\n")
