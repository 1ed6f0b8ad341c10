"""Writes what is made from the registries: the kinds with their counts in README.md, all components
with their options in docs/components.md, and the types of a config in xformer_kit/typed.

    python -m xformer_kit.inspect.table
"""

from collections.abc import Mapping
from pathlib import Path

from xformer_kit.config import GROUPS, NESTED_GROUPS
from xformer_kit.extra import EXTRAS
from xformer_kit.inspect import config_types
from xformer_kit.inspect.components import aliases, as_yaml, in_order, summary
from xformer_kit.registry import REQUIRED, Option, Registry

BEGIN, END = "<!-- table: begin (python -m xformer_kit.inspect.table) -->", "<!-- table: end -->"
KINDS: Mapping[str, Registry] = GROUPS | NESTED_GROUPS | {"extra": EXTRAS}
EXAMPLES = 4  # names per kind in README.md


def kinds_table() -> str:
    """Returns one row per kind: its name, the number of its components, and some of their names."""
    rows = ["| kind | components | for example |", "| --- | ---: | --- |"]
    for kind, registry in KINDS.items():
        if kind in GROUPS or kind == "extra":
            names = ", ".join(f"`{name}`" for name in in_order(registry)[:EXAMPLES])
            rows.append(f"| {kind} | {len(registry)} | {names} |")
    return "\n".join(rows)


def components_table() -> str:
    """Returns one row per component: kind, name, options with defaults, the first sentence of its
    docstring, and its other names.
    """
    rows = ["| kind | component | options | what it is |", "| --- | --- | --- | --- |"]
    for kind, registry in KINDS.items():
        for name in sorted(registry):
            options = ", ".join(_option(key, o) for key, o in registry.options(name).items())
            text = summary(registry[name]).replace("|", "\\|")
            if also := aliases(registry, name):
                text += f"; also called {', '.join(f'`{word}`' for word in also)}"
            rows.append(f"| {kind} | `{name}` | {options or 'none'} | {text} |")
    return "\n".join(rows)


TABLES = {"README.md": kinds_table, "docs/components.md": components_table}


def refreshed(name: str, page: str) -> str:
    """Returns the text of a page of TABLES with its table replaced."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{TABLES[name]()}\n{END}{rest.partition(END)[2]}"


def _option(key: str, option: Option) -> str:
    return f"`{key}`" if option.default == REQUIRED else f"`{key}={as_yaml(option.default)}`"


if __name__ == "__main__":
    for name in TABLES:
        path = Path(name)
        path.write_text(refreshed(name, path.read_text(encoding="utf-8")), encoding="utf-8")
    for file, text in config_types.files().items():
        (config_types.FOLDER / file).write_text(text, encoding="utf-8")
