"""All pages, as Markdown that Sphinx reads."""

import shutil
from pathlib import Path

from docs import markup, settings
from docs.component import component_page
from docs.kind import kind_page, kinds_page
from docs.kinds import KINDS, page
from docs.pictures import pictures
from docs.readme import FILES, ROOT, SECTIONS, linked, of_page
from docs.uses import uses

TITLES = {
    "getting_started": "Getting started",
    "own_components": "Components of your own",
    "promises": "Promises and figures",
}
ORDER = (
    *(
        "getting_started",
        "configuration",
        "command_line",
        "components/index",
        "own_components",
        "studies",
        "findings",
        "configs/index",
    ),
    *("laws", "refusals", "peers", "promises", "benchmarks", "contributing", "changelog"),
)


def write(out: Path, shown: Path) -> None:
    """Write all pages into `out`, and pictures into `shown`; both are emptied first."""
    for folder in (out, shown):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    copied: set[Path] = set()
    for name, text in {
        **_own(copied),
        **dict(settings.config_pages()),
        **_components(shown),
    }.items():
        path = out / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in copied:
        copy = out / "files" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _own(copied: set[Path]) -> dict[str, str]:
    """Pages of the project's own Markdown, and of what is no component."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = {name: linked(of_page(name, readme), "README.md", copied) for name in SECTIONS}
    found = {name: markup.page(title, _lower(said[name])) for name, title in TITLES.items()}
    for source, name in FILES.items():
        if source != "README.md":
            found[name] = linked((ROOT / source).read_text(encoding="utf-8"), source, copied)
    return found | {
        "index": (
            linked(
                (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), "docs/index.md", copied
            )
            + markup.toctree(ORDER)
            + "\n"
        ),
        "configuration": settings.configuration(said["configuration"]),
        "command_line": settings.command_line(),
        "studies": settings.studies(said["studies"].replace("## Studies\n", "", 1)),
        "findings": settings.findings(),
        "laws": settings.laws(),
    }


def _lower(text: str) -> str:
    """A piece of the README without its own title, which stands above it."""
    return text.replace("# xformer_kit\n", "", 1) if text.startswith("# ") else text


def _components(shown: Path) -> dict[str, str]:
    drawn, used = pictures(shown), uses()
    found = {"components/index": kinds_page()}
    for kind, registry in KINDS.items():
        found[f"components/{kind}/index"] = kind_page(kind, drawn)
        for name in registry:
            found[str(page(kind, name))] = component_page(kind, name, used, drawn.get((kind, name)))
    return found
