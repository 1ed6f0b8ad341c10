"""Pages from Markdown files of the repository, with their links changed to pages of the site."""

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
GUIDES = (
    *("first_run", "from_other_libraries", "architectures", "components", "data", "own_text"),
    *("own_tokenizer", "own_data", "tasks", "classification", "own_metric", "own_task"),
    *(
        "schedules",
        "optimizers",
        "fine_tuning",
        "surgery",
        "published_models",
        "studies",
        "devices",
        "slurm",
        "runs",
    ),
    *("loggers", "debugging", "programs"),
)
# File in the repository -> page.
FILES = {
    "docs/index.md": "index",
    "docs/getting_started.md": "getting_started",
    **{f"docs/guide/{name}.md": f"guide/{name}" for name in GUIDES},
    **{
        f"docs/findings/{path.name}": f"findings/{path.stem}"
        for path in sorted((ROOT / "docs" / "findings").glob("*.md"))
    },
    "docs/contract.md": "contract",
    "docs/results.md": "results",
    "docs/peers.md": "peers",
    "docs/refusals.md": "refusals",
    "docs/parity.md": "parity",
    "benchmarks/README.md": "benchmarks",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
}
# Files whose content has another page.
OTHER_FORM = {
    "README.md": "index",
    "docs/components.md": "components/index",
    "docs/python.md": "python",
}
NOT_LISTED = "---\norphan: true\n---\n\n"  # in the navigation: the page findings has the list
LINK = re.compile(r"(!?\[([^\]]*)\]\()([^)\s]+)(\))")


def written_pages(copied: set[Path]) -> dict[str, str]:
    """Returns {page: Markdown}; adds the files that the pages link to to `copied`."""
    return {
        page: NOT_LISTED * page.startswith("findings/")
        + linked((ROOT / source).read_text(encoding="utf-8"), source, page, copied)
        for source, page in FILES.items()
    }


def linked(text: str, source: str, page: str, copied: set[Path]) -> str:
    """Returns the text of a file with its links changed to pages of the site, or to copies of
    files, which are added to `copied`. A link to a missing file is unchanged and fails the build.
    """
    up = "../" * page.count("/")

    def target_of(match: re.Match[str]) -> str:
        target, _, anchor = match[3].partition("#")
        if "://" in target or not target:
            return match[0]
        path = (ROOT / PurePosixPath(source).parent / target).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else target
        if found := (FILES | OTHER_FORM).get(name):
            return f"{match[1]}{up}{found}.md{'#' + anchor if anchor else ''}{match[4]}"
        if path.is_dir():
            return f"{match[2]} (`{name}`)"
        if path.is_file():
            copied.add(path)
            return f"{match[1]}{up}files/{name}{match[4]}"
        return match[0]

    return LINK.sub(target_of, text)
