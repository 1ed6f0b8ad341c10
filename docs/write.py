"""Writes all pages as Markdown for Sphinx."""

import shutil
from pathlib import Path

from docs import markup, settings_pages
from docs.component_page import component_page
from docs.config_uses import uses
from docs.kind_pages import kind_page, kinds_page
from docs.kinds import KINDS, page
from docs.notebooks import notebook_pages
from docs.pictures import pictures
from docs.python_page import python_page
from docs.written_pages import GUIDES, ROOT, written_pages

ORDER = (
    "getting_started",
    *(f"guide/{name}" for name in GUIDES),
    "python",
    *(
        "components/index",
        "contract",
        "configuration",
        "command_line",
        "study_settings",
        "configs/index",
    ),
    *(
        "laws",
        "refusals",
        "peers",
        "parity",
        "results",
        "findings",
        "benchmarks",
        "notebooks/index",
    ),
    *("contributing", "changelog"),
)


def write(out: Path, static: Path) -> None:
    """Writes all pages into `out` and pictures into `static`; both are emptied first."""
    for folder in (out, static):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    copied: set[Path] = set()
    for name, text in {
        **_general(copied),
        **dict(settings_pages.config_pages()),
        **_components(static),
        **notebook_pages(out),
    }.items():
        path = out / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in copied:
        copy = out / "files" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _general(copied: set[Path]) -> dict[str, str]:
    """Returns {page: Markdown} of the pages that are not about one component or one config."""
    found = written_pages(copied)
    return found | {
        "index": f"{found['index']}{markup.toctree(ORDER)}\n",
        "python": python_page(copied),
        "configuration": settings_pages.configuration(),
        "command_line": settings_pages.command_line(),
        "study_settings": settings_pages.studies(),
        "findings": settings_pages.findings(),
        "laws": settings_pages.laws(),
    }


def _components(static: Path) -> dict[str, str]:
    drawn, used = pictures(static), uses()
    found = {"components/index": kinds_page()}
    for kind, registry in KINDS.items():
        found[f"components/{kind}/index"] = kind_page(kind, drawn)
        for name in registry:
            found[str(page(kind, name))] = component_page(kind, name, used, drawn.get((kind, name)))
    return found
