"""Pages of the kinds: a description, and the components with a summary and a picture."""

from collections.abc import Mapping

from docs import markup
from docs.component_page import finder
from docs.kinds import KINDS, description
from docs.typeset import code, typeset
from xformer_kit.inspect.components import summary
from xformer_kit.registry import nested


def kind_page(kind: str, pictures: Mapping[tuple[str, str], tuple[str, str]]) -> str:
    """Returns the Markdown of the page of a kind."""
    registry, find = KINDS[kind], finder(kind)
    rows = []
    for name in sorted(registry):
        file, _ = pictures.get((kind, name), ("", ""))
        image = f'<img class="thumb" src="../../{file}" alt="" loading="lazy">' if file else ""
        rows.append(
            (markup.link(code(name), f"{name}.html"), typeset(summary(registry[name]), find), image)
        )
    head = ("component", "summary", *(("picture",) if any(row[2] for row in rows) else ()))
    return markup.page(
        kind,
        markup.paragraph(typeset(description(kind), find)),
        _holders(kind),
        markup.table(head, [row[: len(head)] for row in rows], "components"),
    )


def _holders(kind: str) -> str:
    """Returns links to the components that have an option of this kind, if it is an inner kind."""
    if kind not in KINDS or "." not in kind or kind.startswith("study"):
        return ""
    outer, _, option = kind.partition(".")
    holders = [
        name
        for name, options in _options(outer).items()
        if nested_in(outer, name, option) and option in options
    ]
    links = ", ".join(
        markup.link(code(f"{outer}={name}"), f"../{outer}/{name}.html") for name in holders
    )
    return markup.paragraph(f"A component of {links}.")


def _options(kind: str) -> dict[str, set[str]]:
    return {name: set(KINDS[kind].options(name)) for name in KINDS[kind]}


def nested_in(outer: str, name: str, option: str) -> bool:
    """Returns whether an option of a component holds a component of the inner kind."""
    options = KINDS[outer].options(name)
    return option in options and nested(options[option].type) is KINDS[f"{outer}.{option}"]


def kinds_page() -> str:
    """Returns the Markdown of the list of kinds with the names of their components."""
    rows = []
    for kind, registry in KINDS.items():
        names = ", ".join(markup.link(name, f"{kind}/{name}.html") for name in sorted(registry))
        rows.append(
            (
                markup.link(code(kind), f"{kind}/index.html"),
                typeset(description(kind), finder(kind)),
                names,
            )
        )
    count = sum(map(len, KINDS.values()))
    return markup.page(
        "Components",
        f"{count} components of {len(KINDS)} kinds. Each page has the formula and its source,"
        " the options with types, defaults and units, the kernels that compute it, the laws that"
        " it satisfies and breaks, and the configs that use it.",
        markup.table(("kind", "description", "components"), rows, "kinds"),
        markup.toctree(f"{kind}/index" for kind in KINDS),
    )
