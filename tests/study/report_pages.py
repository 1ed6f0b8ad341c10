"""Parsers of reports: the text and tables of an HTML page, of Markdown and of CSV."""

import csv
import io
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Text, tables and addresses of a page; every element must be closed where it belongs."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.words, self.rows, self.links, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [
            v
            for k, v in found.items()
            if k in ("src", "href", "xlink:href", "srcset", "action", "data")
        ]
        self.ids += [found["id"]] if "id" in found else []
        self.links += re.findall(r"url\(([^)]*)\)", " ".join(filter(None, found.values())))
        assert tag != "script" and not any(k.startswith("on") for k in found)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of all tables, unescaped."""
    signs = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
    split = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")
    ]
    return [
        [re.sub(r"\\(.)|&\w+;", lambda m: m[1] or signs[m[0]], cell.strip()) for cell in row]
        for row in split
        if not set("".join(row)) <= set("-: ")
    ]


def assert_rounded(shown: str, exact: str) -> None:
    if shown == "-":
        assert exact == ""
        return
    digits = len(shown.partition(".")[2])
    assert abs(float(shown) - float(exact)) <= 0.5000001 * 10.0**-digits
