"""Does every link of a site lead somewhere? Files and anchors are followed; other sites are not
visited.

What a page shows must lie in the site too: nothing may be fetched to read it.
"""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SHOWN = {
    "img": "src",
    "script": "src",
    "link": "href",
    "source": "src",
    "iframe": "src",
    "object": "data",
}


class Page(HTMLParser):
    """The links of a page, what it shows, and the places in it that a link may name."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.shown: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in SHOWN and SHOWN[tag] in values:
            self.shown.append(values[SHOWN[tag]])


def broken(site: Path) -> list[str]:
    """Every link that leads nowhere, and everything that would be fetched from elsewhere."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    return [fault for path in pages for fault in _of_page(path, site, pages)]


def _of_page(path: Path, site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page, name = pages[path], path.relative_to(site)
    for link in dict.fromkeys((*page.links, *page.shown)):
        components = urlsplit(link)
        if components.scheme == "data":
            continue
        if components.scheme or components.netloc:
            if link in page.shown:
                yield f"{name}: shows {link}, which lies elsewhere."
            continue
        target = (path.parent / unquote(components.path)).resolve() if components.path else path
        if not target.is_file() or not target.is_relative_to(site):
            yield f"{name}: links to {link}, which does not exist."
        elif (
            components.fragment
            and target in pages
            and unquote(components.fragment) not in pages[target].anchors
        ):
            yield f"{name}: links to {link}, where no such place is."
