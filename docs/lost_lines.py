"""Finds lines of Markdown whose text is missing on the rendered page, where it follows that of the
line above. Only letters and digits are compared, since Markdown's signs are not text.
"""

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from docs.written_pages import FILES

SOURCES = {f"{page}.md": source for source, page in FILES.items()}  # page -> file of the repository
# Kept: fenced code, code spans. Removed: pictures, targets of links, labels, HTML elements.
PIECES = re.compile(
    r"^(?P<fence>```+|~~~+)(?P<info>.*)\n(?P<code>(?:.*\n)*?)(?P=fence)$"
    r"|(?P<ticks>`+)(?P<span>[^`]+)(?P=ticks)"
    r"|!\[[^\]]*\]\([^)\s]*\)|\]\([^)\s]*\)|</?(?:a|br|code|div|fig\w+|img|p|su[bp]|t\w+)\b[^<>]*>|<!--(?:.|\n)*?-->"
    r"|^\([\w-]+\)=$",
    re.MULTILINE,
)
FRONT = re.compile(r"\A---\n(?:.*\n)*?---\n")
MARKER = re.compile(r"^\s*(?:\d+\.|[-*+]|#+)\s")


class Words(HTMLParser):
    """The letters and digits of the visible text of an HTML page, without its navigation."""

    def __init__(self, text: str):
        super().__init__()
        self.pieces: list[str] = []
        self.in_article = False
        self.feed(text)
        self.text = letters("".join(self.pieces))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.in_article = self.in_article or tag == "article"

    def handle_endtag(self, tag: str) -> None:
        self.in_article = self.in_article and tag != "article"

    def handle_data(self, data: str) -> None:
        if self.in_article:
            self.pieces.append(data)


def lost_lines(pages: Path, site: Path) -> list[str]:
    """Returns a sentence per line of the pages' Markdown that the site lacks, and per page that it
    lacks.
    """
    found = []
    for source in sorted(pages.rglob("*.md")):
        name = source.relative_to(pages)
        written = SOURCES.get(name.as_posix(), name)
        page = (site / name).with_suffix(".html")
        if not page.is_file():
            found.append(f"{written}: has no page")
            continue
        visible = Words(page.read_text(encoding="utf-8")).text
        found += [
            f"{written}:{number}: is missing on the page: {line.strip()[:80]}"
            for number, line in _missing(source.read_text(encoding="utf-8"), visible)
        ]
    return found


def letters(text: str) -> str:
    """Returns the letters and digits of a text."""
    return re.sub(r"[\W_]+", "", text)


def _missing(source: str, visible: str) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of each line whose text is not in `visible` after that of
    the lines above.
    """
    text = PIECES.sub(_visible, FRONT.sub(lambda match: "\n" * match[0].count("\n"), source))
    words = [letters(html.unescape(MARKER.sub("", line))) for line in text.split("\n")]
    lines = [
        (number, line, word)
        for number, (line, word) in enumerate(zip(source.split("\n"), words, strict=True), 1)
        if word
    ]
    end = 0  # of the text of the lines above
    for (number, line, word), (*_, next_word) in zip(lines, [*lines[1:], (0, "", "")], strict=True):
        start = visible.find(word, end)
        # The same text further down is not that of this line if the next line comes first.
        if start < 0 or (next_word and end <= visible.find(next_word, end) < start):
            yield number, line
        else:
            end = start + len(word)


def _visible(match: re.Match[str]) -> str:
    """Returns the visible text of a piece of Markdown, with as many line breaks."""
    if match["fence"]:
        kept = "" if match["info"].startswith("{") else match["code"]
        return "\n" + (kept or "\n" * match["code"].count("\n"))
    return match["span"] or "\n" * match[0].count("\n")
