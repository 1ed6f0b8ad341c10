"""The counts of components of each kind here and in other libraries, for docs/peers.md.

A list is a line of a section: `- library: ` and names in backticks, with `; ` between them. After
a name may stand, in brackets, the name of the same in xformer_kit, and a few words. Our own lists
are made from the registries.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args, get_origin

from xformer_kit.config import GROUPS, INNER
from xformer_kit.config.settings import SETTINGS
from xformer_kit.extra import EXTRAS
from xformer_kit.ffn.dense import ACTIVATIONS
from xformer_kit.inspect.table import between
from xformer_kit.registry import Option, nested

OURS = "xformer_kit"
COUNTS = (
    "<!-- counts: begin (python -m xformer_kit.inspect.peers docs/peers.md) -->",
    "<!-- counts: end -->",
)
LACKS = "<!-- lacks: begin -->", "<!-- lacks: end -->"
NOTHING = ("none", "auto", "plain")  # parts that do nothing themselves, or only choose another
# Options of `multi_head` that choose no mechanism.
NUMBERS = ("heads", "head_dim", "v_head_dim", "bias", "scale", "dropout", "score")
PARTS = GROUPS | INNER
# The sections of the page that have a registry.
KINDS = (
    "attn",
    "attn.score",
    "mask",
    "position",
    "position.scaling",
    "norm",
    "placement",
    "ffn",
    "ffn.router",
    "kernel",
    "init",
)
ITEM = re.compile(r"`([^`]+)`(?: \(([^)]+)\))?([^;]*)")


class Name(NamedTuple):
    """One thing of a library, as its list says it."""

    name: str
    ours: str  # kind and name of the same thing here; empty where the list says none
    what: str


def own() -> dict[str, list[str]]:
    """Our names of each kind of the page. Options of an attention are counted apart, and those of
    softmax beside the scores.
    """
    parts = {kind: [name for name in sorted(PARTS[kind]) if name not in NOTHING] for kind in KINDS}
    heads, softmax = PARTS["attn"].options("multi_head"), PARTS["attn.score"].options("softmax")
    parts["attn.option"] = [
        f"multi_head.{said}"
        for key, o in heads.items()
        if key not in NUMBERS
        for said in _choices(key, o)
    ]
    parts["attn.score"] += [f"softmax.{key}" for key in softmax]
    return parts | {"activation": list(ACTIVATIONS)}


def lists(page: str) -> dict[str, dict[str, list[Name]]]:
    """{kind: {library: names}}, from the sections `### kind` of a page."""
    found: dict[str, dict[str, list[Name]]] = {}
    for section in page.split("\n### ")[1:]:
        lines = re.findall(r"^- ([\w-]+): (.*)$", section, flags=re.MULTILINE)
        found[re.split(r"\W*\s", section)[0]] = {
            library: [Name(name, ours, what.strip(" ,")) for name, ours, what in ITEM.findall(line)]
            for library, line in lines
        }
    return found


def refreshed(page: str) -> str:
    """The page with our lists, the counts, and what we lack as they are now."""
    for kind, names in own().items():
        line = f"- {OURS}: " + ("; ".join(f"`{name}`" for name in names) or "none")
        page = re.sub(
            rf"(\n### {re.escape(kind)}(?![\w.])[^#]*?\n)- {OURS}:[^\n]*", rf"\g<1>{line}", page
        )
    kinds = lists(page)
    return between(between(page, COUNTS, _table(kinds)), LACKS, _lacks(kinds))


def _choices(key: str, option: Option) -> list[str]:
    """An option once for each of the mechanisms that it names, or once. One that holds a part: each
    part but the usual one, and each of their options.
    """
    if (inner := nested(option.type)) is not None:
        others = [name for name in inner if name not in (*NOTHING, option.default["name"])]
        options = dict.fromkeys(
            word for name in others for word in inner.options(name) if word not in NUMBERS
        )
        return [*(f"{key}={name}" for name in others), *(f"{key}.{word}" for word in options)]
    said = (option.type, *get_args(option.type))
    values = [
        value
        for t in said
        if get_origin(t) is Literal
        for value in get_args(t)
        if value != option.default
    ]
    return [f"{key}={value}" for value in values] or [key]


def _known() -> dict[str, set[str]]:
    """All that a bracket may name: our names, every option of a part, those of `model`, and a part
    of the user's own.
    """
    known = {kind: set(names) for kind, names in own().items()}
    for kind in KINDS:
        parts = PARTS[kind]
        known[kind] |= {f"{name}.{option}" for name in parts for option in parts.options(name)}
    of_model = {"model": set(SETTINGS.options("model")), "extra": set(EXTRAS)}
    return known | of_model | {"own": {"part"}}


def _table(kinds: Mapping[str, Mapping[str, list[Name]]]) -> str:
    libraries = list(next(iter(kinds.values())))
    rows = [f"| kind | {' | '.join(libraries)} |", "| --- |" + " --- |" * len(libraries)]
    rows += [
        f"| {kind} | {' | '.join(str(len(of[library])) for library in libraries)} |"
        for kind, of in kinds.items()
    ]
    rows += ["", "More names than ours:", ""]
    for library in libraries:
        ahead = [kind for kind, of in kinds.items() if len(of[library]) > len(of[OURS])]
        more = [
            f"{kind} ({len(kinds[kind][library])} to {len(kinds[kind][OURS])})" for kind in ahead
        ]
        rows += [f"- {library}: {', '.join(more)}."] if more else []
    return "\n".join(rows)


def _lacks(kinds: Mapping[str, Mapping[str, list[Name]]]) -> str:
    """What each library has and we have not, by kind."""
    known, lines = _known(), []
    for library in [name for name in next(iter(kinds.values())) if name != OURS]:
        lines.append(f"- {library}")
        for kind, of in kinds.items():
            missing = [
                f"`{n.name}` {n.what}".strip() for n in of[library] if not _has(known, n.ours)
            ]
            lines += [f"  - {kind} ({len(missing)}): {'; '.join(missing)}"] if missing else []
    return "\n".join(lines)


def _has(known: Mapping[str, set[str]], said: str) -> bool:
    kind, _, name = said.partition(" ")
    return bool(said) and name in known[kind]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
