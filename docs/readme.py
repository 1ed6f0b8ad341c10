"""The project's own Markdown as pages: the README in pieces, and others whole. Nothing is copied by
hand.
"""

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
# Page -> the sections of the README that it shows; those that no page names stand on the first.
SECTIONS = {
    "getting_started": (),
    "configuration": ("Blocks that differ",),
    "studies": ("Studies",),
    "own_components": ("A component of your own",),
    "promises": ("What is promised, and tested", "Measured", "Limits"),
}
LEFT_OUT = ("Components",)  # its table is the pages of the components
# File of the repository -> its page.
FILES = {
    "README.md": "getting_started",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "benchmarks",
    "docs/peers.md": "peers",
    "docs/refusals.md": "refusals",
}
LINK = re.compile(r"(!?\[([^\]]*)\]\()([^)\s]+)(\))")


def sections(text: str) -> dict[str, str]:
    """Title -> text of each `##` section; what stands before the first has no title."""
    found, title, fenced = {"": ""}, "", False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            title = line[3:].strip()
            found[title] = ""
        found[title] += line
    return found


def of_page(page: str, text: str) -> str:
    """What a page shows of the README."""
    named = {title for titles in SECTIONS.values() for title in titles}
    if page == next(iter(SECTIONS)):
        return "".join(
            said for title, said in sections(text).items() if title not in {*named, *LEFT_OUT}
        )
    found = sections(text)
    return "".join(found[title] for title in SECTIONS[page])


def linked(text: str, source: str, copied: set[Path]) -> str:
    """The text of a file of the repository with links that lead from its page: to other pages, or
    to copies of files, which are added to `copied`. What does not exist stays as it is, and breaks
    the build.
    """

    def lead(match: re.Match[str]) -> str:
        target, _, place = match[3].partition("#")
        if "://" in target or not target:
            return match[0]
        path = (ROOT / PurePosixPath(source).parent / target).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else target
        if name in FILES:
            return f"{match[1]}{FILES[name]}.md{'#' + place if place else ''}{match[4]}"
        if path.is_dir():
            return f"{match[2]} (`{name}`)"
        if path.is_file():
            copied.add(path)
            return f"{match[1]}files/{name}{match[4]}"
        return match[0]

    return LINK.sub(lead, text)
