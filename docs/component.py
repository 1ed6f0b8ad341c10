"""The page of one component: formula, picture, options, kernels, laws, and the configs that name
it.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from docs import markup
from docs.facts import LAWS, broken, judged, kernels, with_them
from docs.kinds import KINDS, page
from docs.typeset import Find, code, paragraphs, typeset
from xformer_kit.inspect.components import doc, names_for, rows
from xformer_kit.kernel import KERNELS
from xformer_kit.registry import nested

ROOT = Path(__file__).resolve().parents[1]
UP = "../../"  # from a component's page to the root of the site


def component_page(
    kind: str, name: str, used: Mapping[tuple[str, str], list[str]], picture: tuple[str, str] | None
) -> str:
    """Markdown of the page. `picture`: a file of the site and its caption."""
    registry = KINDS[kind]
    component, find = registry[name], finder(kind)
    blocks = [
        markup.paragraph(_above(kind, name), "above"),
        markup.paragraph(_way(kind, name)),
        *_said(component, find, set(registry.options(name))),
        _figure(picture),
        "## Options",
        _options(kind, name, find),
        *_kernels(kind, name),
        *_laws(kind, name, find),
        "## Configs that name it",
        _used(used.get((kind, name), [])),
        "## Source",
        markup.paragraph(code(_source(component))),
    ]
    return markup.page(
        name, *blocks, listed=False
    )  # a list of all components on every page takes minutes to build


def finder(kind: str) -> Find:
    """What a word of a page about `kind` links to: a component, said as attn=linear, or by its name
    alone among its kind.
    """

    def find(word: str) -> str | None:
        left, sign, right = word.partition("=")
        where = (left, right) if sign else (kind, word)
        known = where[0] in KINDS and where[1] in KINDS[where[0]]
        return f"{UP}{page(*where)}.html" if known else None

    return find


def _figure(picture: tuple[str, str] | None) -> str:
    if picture is None:
        return ""
    file, caption = picture
    said = markup.text(caption)
    return markup.block(
        f'<figure><img src="{UP}{file}" alt="{said}"><figcaption>{said}.</figcaption></figure>'
    )


def _above(kind: str, name: str) -> str:
    """Links to the enclosing pages, and to the components before and after this one."""
    others = sorted(KINDS[kind])
    at = others.index(name)
    neighbours = (
        [others[at - 1], others[(at + 1) % len(others)]]
        if len(others) > 2
        else [o for o in others if o != name]
    )
    links = " | ".join(markup.link(other, f"{other}.html") for other in neighbours)
    up = f"{markup.link('Components', '../index.html')} / {markup.link(kind, 'index.html')}"
    return f"{up} &ensp; next to it: {links}" if links else up


def _way(kind: str, name: str) -> str:
    """How a command line chooses the component."""
    also = ", ".join(code(word) for word in names_for(KINDS[kind], name))
    return code(f"python train.py {KINDS[kind].override_for(name)}") + (
        f" &ensp; also called {also}" if also else ""
    )


def _said(component: Any, find: Find, options: set[str]) -> list[str]:
    said = paragraphs(doc(component), find, options)
    return [markup.paragraph(words, "formula" if i == 0 else "") for i, words in enumerate(said)]


def _options(kind: str, name: str, find: Find) -> str:
    registry = KINDS[kind]
    found = []
    for row in rows(registry, name):
        inner = nested(registry.options(name)[row.name].type)
        kinds = [k for k, other in KINDS.items() if other is inner]
        type_ = (
            markup.link(row.type, f"../{kinds[0]}/index.html") if kinds else markup.text(row.type)
        )
        default = "required" if row.default == "required" else code(row.default or "''")
        found.append((code(row.name), type_, default, typeset(row.meaning, find)))
    return (
        markup.table(("option", "type", "default", "meaning, unit"), found, "options")
        if found
        else "It has none."
    )


def _kernels(kind: str, name: str) -> list[str]:
    if kind == "kernel":
        return ["## Where it runs", _runs(name)]
    found = kernels(kind, name)
    if not found:
        return []
    lines = []
    for verdict in found:
        where = f"{UP}{page('kernel', verdict.kernel)}.html"
        turned = ", ".join(code(options) for options in verdict.reasons if options)
        first = next(iter(verdict.reasons.values()), "")
        note = (
            ""
            if not first
            else f"not with {turned}"
            if verdict.able and "" not in verdict.reasons
            else first
        )
        if verdict.able and "" in verdict.reasons:
            note = f"as it is not: {first}"
        lines.append(
            (markup.link(code(verdict.kernel), where), "yes" if verdict.able else "no", note)
        )
    return ["## Kernels", markup.table(("kernel", "can", ""), lines)]


def _runs(name: str) -> str:
    kernel = KERNELS[name]
    devices = " and ".join(device.upper() for device in kernel.trains_on or ()) or "all devices"
    if name == "auto":
        return "Wherever the kernel that it takes runs."
    return (
        f"It computes {' and '.join(kernel.computes)}; gradients on {devices}. Among those that"
        " can, `auto` takes the fastest."
    )


def _laws(kind: str, name: str, find: Find) -> list[str]:
    if not judged(kind):
        return []
    found = []
    for law in broken(KINDS[kind], kind, name):
        falls = "".join(f", {law_link(other)}" for other in with_them(law.law))
        when = ", ".join(code(options) for options in law.options) or "always"
        found.append((law_link(law.law) + falls, when, typeset(law.reason, find)))
    fallen = {
        other for law in broken(KINDS[kind], kind, name) for other in (law.law, *with_them(law.law))
    }
    kept = ", ".join(law_link(law) for law in LAWS if law not in fallen)
    lost = markup.table(("breaks", "with", "because"), found) if found else ""
    return [
        "## Laws",
        lost,
        markup.paragraph(f"Keeps {kept}." if found else f"Keeps all: {kept}.", "laws"),
    ]


def law_link(law: str) -> str:
    return markup.link(law, f"{UP}laws.html#{law.replace(' ', '-')}")


def _used(names: list[str]) -> str:
    if not names:
        return "None of those that come with xformer_kit."
    return markup.paragraph(
        ", ".join(
            markup.link(code(f"conf/{name}.yaml"), f"{UP}{config_place(name)}") for name in names
        )
    )


def config_place(name: str) -> str:
    """Where a config is shown, from the root of the site."""
    folder = PurePosixPath(name).parent
    page_ = "train" if str(folder) == "." else str(folder).replace("/", "-")
    return f"configs/{page_}.html#conf-{name.replace('/', '-').replace('_', '-')}"


def _source(component: Any) -> str:
    """File and line of a component."""
    line = inspect.getsourcelines(component)[1]
    return f"{Path(inspect.getfile(component)).resolve().relative_to(ROOT)}, line {line}"
