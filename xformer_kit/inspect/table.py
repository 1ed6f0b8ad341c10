"""The table of parts in the README, made from the registries."""

import sys
from pathlib import Path

from xformer_kit.config import GROUPS, INNER
from xformer_kit.inspect.parts import summary, written
from xformer_kit.registry import REQUIRED, Option

BEGIN, END = (
    "<!-- parts: begin (python -m xformer_kit.inspect.table README.md) -->",
    "<!-- parts: end -->",
)


def parts_table() -> str:
    """One row per registered part: group, name, options with defaults, and what it is in a
    sentence.
    """
    rows = ["| kind | part | options | what it is |", "| --- | --- | --- | --- |"]
    for group, registry in (GROUPS | INNER).items():
        for name in sorted(registry):
            options = (
                ", ".join(_option(key, o) for key, o in registry.options(name).items()) or "none"
            )
            rows.append(f"| {group} | `{name}` | {options} | {_escaped(summary(registry[name]))} |")
    return "\n".join(rows)


def refreshed(readme: str) -> str:
    """The README's text with a new table between its marks."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{parts_table()}\n{END}{tail}"


def _option(key: str, option: Option) -> str:
    return f"`{key}`" if option.default == REQUIRED else f"`{key}={written(option.default)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
