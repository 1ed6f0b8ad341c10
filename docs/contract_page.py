"""Writes docs/contract.md: what the components of each kind receive and define, from annotations,
comments and docstrings of the package.

    python -m docs.contract_page
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.contract_kinds import HIDDEN, KINDS, SHARED, TYPE_NAMES, Contract
from docs.kinds import KINDS as REGISTRIES
from docs.members import (
    ENTRY,
    Member,
    function,
    members,
    one_line,
    own_members,
    package_bases,
    type_names,
)
from xformer_kit.laws import LAWS, explanation
from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.registry import traits
from xformer_kit.tensors.component import Component

LAWS_TEXT = (
    "What `xformer check` checks, by the names for `breaks`; a name after a kind is one of the laws"
    " of components that are not part of a model. Which laws a hook breaks: tokens that `choose`"
    " takes by comparing a whole text, *causality in training*; tokens of `front`, *cache with"
    " documents* and *device with documents*."
)
PAGE = Path(__file__).parent / "contract.md"
EXAMPLES = Path(__file__).parent / "examples"
LINE = 100  # characters
TOP = (
    "# The contract of components",
    "A component of your own is a class, or a function that returns a module, in a file of your"
    " own: `python train.py components=[mine.py] mask=mine` ([guide](guide/components.md)). Its"
    " keyword-only parameters are its options, each with a type and a comment that states its unit"
    " or meaning. Of what is passed to it, it takes what it needs, by name, as parameters before"
    " the `*`. `xformer check mine.py` checks the laws. Each kind has an example, a complete file.",
    "`python -m docs.contract_page` writes this page from annotations, comments and docstrings of"
    " the package. In the tables of methods, *needed* is yes for a method that every component"
    " defines, and *if used* for another one without a default.",
)


def page() -> str:
    """Returns the page as Markdown."""
    parts = [*TOP, f"Kinds: {_links(KINDS)}", f"Of several kinds: {_links(SHARED)}"]
    parts += ["## Any component", *class_parts(Component)]
    for kind, contract in KINDS.items():
        parts += kind_parts(kind, contract)
    for heading, (text, module, names) in SHARED.items():
        parts += [f"## {heading}", text, _import(module, names), *_items(module, names)]
    parts += ["## Names of types", _type_names(), "## Laws", LAWS_TEXT, _laws()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _laws() -> str:
    """Returns the table of the laws: the name, which `breaks` uses, and the first sentence."""
    named: list[tuple[str, Any]] = [*LAWS.items()]
    named += [(f"{kind}: {n}", law) for kind, laws in KIND_LAWS.items() for n, law in laws.items()]
    rules = [(name, explanation(law).rule.partition(". ")[0]) for name, law in named]
    return table(("law", "meaning"), [(name, f"{rule.rstrip('.')}.") for name, rule in rules])


def _links(headings: Sequence[str] | Any) -> str:
    slugs = {h: re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    return " · ".join(f"[{heading}](#{slug})" for heading, slug in slugs.items())


def _import(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) > LINE:  # as ruff formats it, also in Markdown
        line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
    return f"```python\n{line}\n```"


def kind_parts(kind: str, contract: Contract) -> Iterator[str]:
    """Yields the parts of the section of a kind."""
    module, registry = import_module(contract.module), REGISTRIES[kind]
    base = getattr(module, contract.base) if contract.base else None
    name = next(name for name, value in vars(module).items() if value is registry)
    yield f"## {kind}"
    if contract.about:
        yield from paragraphs(import_module(contract.about))
    if base is not None:
        yield from paragraphs(base)
    names = [name, *([contract.base] if contract.base else []), *contract.also]
    yield _import(contract.module, names)
    if files := [path for path in sorted(EXAMPLES.glob("*.py")) if f"@{name}." in path.read_text()]:
        yield f"Examples: {', '.join(f'[{f.name}](examples/{f.name})' for f in files)}"
    given = registry.caller_arguments
    if passed := members(given).values() if given is not object else ():
        yield escaped(one_line(inspect.getdoc(given)))
        yield table(("argument", "type", "meaning"), [(m.name, m.shown, m.text) for m in passed])
    else:
        yield "Only its options are passed to its constructor."
    if base is not None:
        yield from tables(base, [one for one in registry.values() if in_package(one)])
    if contract.traits:
        trait = getattr(traits, contract.traits)
        yield f"### `{contract.traits}`"
        yield _import("xformer_kit.registry.traits", [contract.traits])
        yield from class_parts(trait)
    yield from _items(contract.module, contract.also)


def in_package(component: Any) -> bool:
    """Whether a component is one of the package, not of a test or a user."""
    return str(component.__module__).startswith("xformer_kit.")


def _items(module: str, names: Sequence[str]) -> Iterator[str]:
    """Yields the parts of classes of a module, then a table of its functions."""
    found = [getattr(import_module(module), name) for name in names]
    for item in filter(inspect.isclass, found):
        yield from (f"### `{item.__name__}`", *class_parts(item))
    functions = [function(item) for item in found if inspect.isfunction(item)]
    if functions:
        yield table(("function", "meaning"), [(m.shown, m.text) for m in functions if m])


def described_members(cls: type) -> list[Member]:
    """Returns the members of a class on the page; those of a base that has a section itself only if
    the class changes them.
    """
    own, found = own_members(cls), members(cls)
    if shown_base(cls) is not None:
        found = {name: member for name, member in found.items() if name in own}
    hidden = {*HIDDEN.get(cls.__name__, ())}
    if cls is not Component:
        hidden |= {name for name in members(Component) if name in found and not found[name].text}
    return [m for m in found.values() if m.name not in hidden]


def shown_base(cls: type) -> type | None:
    """Returns the base of a class that has a section of its own on the page, or None."""
    shown = {contract.base for contract in KINDS.values()}
    shown |= {name for _, _, names in SHARED.values() for name in names}
    return next((base for base in package_bases(cls)[1:] if base.__name__ in shown), None)


def class_parts(cls: type) -> Iterator[str]:
    """Yields the parts that describe a class: its docstring and its members."""
    yield from paragraphs(cls)
    yield from tables(cls)


def paragraphs(item: Any) -> Iterator[str]:
    """Yields the paragraphs of a docstring, but for those that list attributes."""
    for text in (inspect.getdoc(item) or "").split("\n\n"):
        if not (inspect.isclass(item) and ENTRY.match(text)):
            yield escaped(one_line(text))
    if inspect.isclass(item) and (base := shown_base(item)) is not None:
        yield f"It derives from `{base.__name__}` and has its members."


def tables(cls: type, components: Sequence[Any] = ()) -> Iterator[str]:
    """Yields the tables of a class. components: the registered ones, for the base of a kind."""
    found = described_members(cls)
    if fields := [m for m in found if not m.is_method]:
        rows = [(m.name, m.shown, m.default, m.text) for m in fields]
        yield table(("name", "type", "default", "meaning"), rows)
    if methods := [m for m in found if m.is_method]:
        rows = [(m.shown, needed(cls, m, components), "", m.text) for m in methods]
        yield table(("method", "needed", "", "meaning"), rows)


def needed(base: type, member: Member, components: Sequence[Any]) -> str:
    """Returns whether a component has to define a method: "yes", "if used" or ""."""
    if not member.is_abstract or not components:
        return ""
    own = getattr(base, member.name)
    defined = [getattr(one, member.name, own) is not own for one in components]
    return "yes" if all(defined) else "if used"


def _type_names() -> str:
    """Returns the table of the names of types in signatures."""
    rows = [
        (name, type_names(import_module(module))[name])
        for module, names in TYPE_NAMES.items()
        for name in names
    ]
    return table(("name", "type", "meaning"), [(name, m.shown, m.text) for name, m in rows])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table without its empty columns; the last column is text and the others code, but
    for "needed".
    """
    kept = [i for i, word in enumerate(head) if word == "meaning" or any(row[i] for row in rows)]
    cells = [
        [escaped(row[i]) if head[i] in ("meaning", "needed") else _code(row[i]) for i in kept]
        for row in rows
    ]
    lines = [[head[i] for i in kept], ["---"] * len(kept), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def escaped(text: str) -> str:
    """Returns a docstring as Markdown: what is in backticks is unchanged, a star is a star."""
    parts = re.split(r"(`[^`]*`)", text)
    plain = [part if part[:1] == "`" else re.sub(r"([*<])", r"\\\1", part) for part in parts]
    return "".join(plain).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
