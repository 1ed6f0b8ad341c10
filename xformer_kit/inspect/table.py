"""The table of parts in the README, made from the registries."""

import re
import sys
from pathlib import Path

from xformer_kit.config import GROUPS
from xformer_kit.registry import REQUIRED, Option, Registry, plain

BEGIN, END = "<!-- parts: begin (python -m xformer_kit.inspect.table README.md) -->", "<!-- parts: end -->"


def parts_table() -> str:
    """One row per registered part: kind, name, options with defaults, and the first sentence of its docstring."""
    rows = ["| kind | part | options | what it is |", "| --- | --- | --- | --- |"]
    for group, registry in GROUPS.items():
        for name in sorted(registry):
            options = ", ".join(_option(key, o) for key, o in registry.options(name).items()) or "none"
            rows.append(f"| {group} | `{name}` | {options} | {_escaped(first_sentence(registry, name))} |")
    return "\n".join(rows)


def first_sentence(registry: Registry, name: str) -> str:
    """What a part is, in its own words: the first sentence of its docstring."""
    text = " ".join((registry[name].__doc__ or "").split())
    end = re.search(r"(?<!\beq)(?<!\bal)\. (?=[A-Z`])", text)
    return text[: end.start() + 1] if end else text


def refreshed(readme: str) -> str:
    """The README's text with a new table between its marks."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{parts_table()}\n{END}{tail}"


def _option(key: str, option: Option) -> str:
    words = {None: "null", True: "true", False: "false"}
    if option.default == REQUIRED:
        return f"`{key}`"
    value = plain(option.default)
    shown = words[value] if value is None or isinstance(value, bool) else value
    return f"`{key}={shown}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    readme = Path(sys.argv[1])
    readme.write_text(refreshed(readme.read_text(encoding="utf-8")), encoding="utf-8")
