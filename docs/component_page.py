"""Page of one component: docstring, picture, options, kernels, laws, configs that use it."""

import inspect
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from docs import markup
from docs.component_facts import LAWS, broken_laws, has_laws, implied, kernels
from docs.kinds import KINDS, page
from docs.typeset import Find, code, paragraphs, typeset
from xformer_kit.inspect.components import aliases, doc, option_rows
from xformer_kit.kernel import KERNELS
from xformer_kit.registry import nested

ROOT = Path(__file__).resolve().parents[1]
UP = "../../"  # from a component's page to the root of the site


def component_page(
    kind: str, name: str, used: Mapping[tuple[str, str], list[str]], picture: tuple[str, str] | None
) -> str:
    """Returns the Markdown of the page.

    used: component -> names of the configs that use it. picture: file in the site, and caption.
    """
    registry = KINDS[kind]
    component, find = registry[name], finder(kind)
    blocks = [
        markup.paragraph(_navigation(kind, name), "above"),
        markup.paragraph(_override(kind, name)),
        *_docstring(component, find, set(registry.options(name))),
        _figure(picture),
        "## Options",
        _options(kind, name, find),
        *_kernels(kind, name),
        *_laws(kind, name, find),
        "## Configs that use it",
        _used(used.get((kind, name), [])),
        "## Source",
        markup.paragraph(code(_source(component))),
    ]
    # Not in the navigation: a list of all components on each page takes minutes to render.
    return markup.page(name, *blocks, listed=False)


def finder(kind: str) -> Find:
    """Returns a function from a word on a page about `kind` to the address of the component that it
    names: attn=linear, or only its name if it is of this kind; None for other words.
    """

    def find(word: str) -> str | None:
        left, sign, right = word.partition("=")
        of_kind, name = (left, right) if sign else (kind, word)
        known = of_kind in KINDS and name in KINDS[of_kind]
        return f"{UP}{page(of_kind, name)}.html" if known else None

    return find


def _figure(picture: tuple[str, str] | None) -> str:
    if picture is None:
        return ""
    file, caption = picture
    text = markup.text(caption)
    return markup.block(
        f'<figure><img src="{UP}{file}" alt="{text}"><figcaption>{text}.</figcaption></figure>'
    )


def _navigation(kind: str, name: str) -> str:
    """Returns links to the list of kinds, the kind, and the previous and next component."""
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


def _override(kind: str, name: str) -> str:
    """Returns the command that selects the component, and its other names."""
    also = ", ".join(code(word) for word in aliases(KINDS[kind], name))
    return code(f"python train.py {KINDS[kind].override_for(name)}") + (
        f" &ensp; also called {also}" if also else ""
    )


def _docstring(component: Any, find: Find, options: set[str]) -> list[str]:
    texts = paragraphs(doc(component), find, options)
    return [markup.paragraph(text, "formula" if i == 0 else "") for i, text in enumerate(texts)]


def _options(kind: str, name: str, find: Find) -> str:
    registry = KINDS[kind]
    found = []
    for row in option_rows(registry, name):
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
        else "None."
    )


def _kernels(kind: str, name: str) -> list[str]:
    if kind == "kernel":
        return ["## Supported devices", _devices(name)]
    found = kernels(kind, name)
    if not found:
        return []
    lines = []
    for support in found:
        address = f"{UP}{page('kernel', support.kernel)}.html"
        changed = ", ".join(code(options) for options in support.reasons if options)
        note = next(iter(support.reasons.values()), "")
        if support.supported and note:
            by_default = "" in support.reasons
            note = f"not with the defaults: {note}" if by_default else f"not with {changed}"
        supported = "yes" if support.supported else "no"
        lines.append((markup.link(code(support.kernel), address), supported, note))
    return ["## Kernels", markup.table(("kernel", "supported", ""), lines)]


def _devices(name: str) -> str:
    kernel = KERNELS[name]
    devices = " and ".join(device.upper() for device in kernel.trains_on or ()) or "all devices"
    if name == "auto":
        return "All devices: the fastest kernel that can compute the attention is used."
    return (
        f"Computes {' and '.join(kernel.computes)}; gradients on {devices}. `auto` selects the"
        " fastest kernel that can compute the attention."
    )


def _laws(kind: str, name: str, find: Find) -> list[str]:
    if not has_laws(kind):
        return []
    rows, broken = [], set()
    for law in broken_laws(KINDS[kind], kind, name):
        laws = [law.law, *implied(law.law)]
        broken.update(laws)
        options = ", ".join(map(code, law.options)) or "always"
        rows.append((", ".join(map(law_link, laws)), options, typeset(law.reason, find)))
    satisfied = ", ".join(law_link(law) for law in LAWS if law not in broken)
    return [
        "## Laws",
        markup.table(("breaks", "with", "reason"), rows) if rows else "",
        markup.paragraph(f"Satisfies {'' if rows else 'all: '}{satisfied}.", "laws"),
    ]


def law_link(law: str) -> str:
    """Returns a link to a law on the page of laws."""
    return markup.link(law, f"{UP}laws.html#{law.replace(' ', '-')}")


def _used(names: list[str]) -> str:
    if not names:
        return "None of the configs of xformer_kit."
    return markup.paragraph(
        ", ".join(
            markup.link(code(f"conf/{name}.yaml"), f"{UP}{config_place(name)}") for name in names
        )
    )


def config_place(name: str) -> str:
    """Returns the address of a config's text, from the root of the site."""
    folder = PurePosixPath(name).parent
    page_ = "train" if str(folder) == "." else str(folder).replace("/", "-")
    return f"configs/{page_}.html#conf-{name.replace('/', '-').replace('_', '-')}"


def _source(component: Any) -> str:
    """Returns the file and line of a component."""
    line = inspect.getsourcelines(component)[1]
    return f"{Path(inspect.getfile(component)).resolve().relative_to(ROOT)}, line {line}"
