"""Finds links of a site whose file or anchor does not exist. Links to other sites are not
followed.

Images, scripts and style sheets must be files of the site: reading it needs no network.
"""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Element -> its attribute with a file that the page displays.
EMBEDDED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "source": "src",
    "iframe": "src",
    "object": "data",
}


class Page(HTMLParser):
    """The links, the embedded files and the anchors of an HTML page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.embedded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in EMBEDDED and EMBEDDED[tag] in values:
            self.embedded.append(values[EMBEDDED[tag]])


def broken_links(site: Path) -> list[str]:
    """Returns a sentence per link without a target and per embedded file of another site."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    return [fault for path in pages for fault in _page_faults(path, site, pages)]


def _page_faults(path: Path, site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page, name = pages[path], path.relative_to(site)
    for link in dict.fromkeys((*page.links, *page.embedded)):
        parts = urlsplit(link)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            if link in page.embedded:
                yield f"{name}: embeds {link}, which is not a file of the site."
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file() or not target.is_relative_to(site):
            yield f"{name}: links to {link}, which does not exist."
        elif (
            parts.fragment
            and target in pages
            and unquote(parts.fragment) not in pages[target].anchors
        ):
            yield f"{name}: links to {link}, an anchor that does not exist."
