"""The table of components in the README, made from the registries."""

import sys
from pathlib import Path

from xformer_kit.config import GROUPS, INNER
from xformer_kit.inspect.components import summary, written
from xformer_kit.registry import REQUIRED, Option

MARKS = (
    "<!-- components: begin (python -m xformer_kit.inspect.table README.md) -->",
    "<!-- components: end -->",
)


def components_table() -> str:
    """One row per registered component: group, name, options with defaults, and what it is in a
    sentence.
    """
    rows = ["| kind | component | options | what it is |", "| --- | --- | --- | --- |"]
    for group, registry in (GROUPS | INNER).items():
        for name in sorted(registry):
            options = ", ".join(_option(key, o) for key, o in registry.options(name).items())
            what = summary(registry[name]).replace("|", "\\|")
            rows.append(f"| {group} | `{name}` | {options or 'none'} | {what} |")
    return "\n".join(rows)


def refreshed(readme: str) -> str:
    """The README's text with a new table between its marks."""
    return between(readme, MARKS, components_table())


def between(page: str, marks: tuple[str, str], text: str) -> str:
    """The page with the text between two marks."""
    head, _, rest = page.partition(marks[0])
    return f"{head}{marks[0]}\n{text}\n{marks[1]}{rest.partition(marks[1])[2]}"


def _option(key: str, option: Option) -> str:
    return f"`{key}`" if option.default == REQUIRED else f"`{key}={written(option.default)}`"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
