"""Facts about a component next to its signature: the kernels that compute it, and the laws that it
breaks, with which options.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from xformer_kit.inspect.components import written
from xformer_kit.kernel import KERNELS, cannot_compute
from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.laws.checking import COMPANIONS, COMPONENTS, chosen, example, faces
from xformer_kit.laws.registry import UNDER
from xformer_kit.plan import stacks
from xformer_kit.registry import REQUIRED, Context, Registry

LOOKS = (
    "attn",
    "mask",
    "position",
)  # kinds that decide, with the components inside them, which kernels can


class Verdict(NamedTuple):
    """What a kernel says of a component."""

    kernel: str
    able: bool  # with some options, at least
    reasons: dict[str, str]  # options, or nothing for the component as it is -> why not


class Broken(NamedTuple):
    """A law that a component breaks."""

    law: str
    reason: str
    options: tuple[str, ...]  # with which it does; none: with all


def judged(kind: str) -> bool:
    """Whether laws say anything about components of a kind."""
    return kind in COMPONENTS


def kernels(kind: str, name: str) -> list[Verdict]:
    """Every kernel, in the order of speed, and whether it can compute what the component is
    composed with; nothing for components that no kernel sees.
    """
    if kind.split(".")[0] not in LOOKS:
        return []
    looks = list(_looks(kind, name))
    found = []
    for kernel in sorted((k for k in KERNELS if k != "auto"), key=lambda k: -KERNELS[k].speed):
        said = [(options, cannot_compute(kernel, context)) for options, context in looks]
        reasons = {options: reason for options, reason in said if reason}
        found.append(Verdict(kernel, len(reasons) < len(looks), reasons))
    return found


def _looks(kind: str, name: str) -> Iterator[tuple[str, Context]]:
    """The component as it is and with each of its switches, in the first composition that is not
    refused: the options that are turned, and what a kernel is asked there.
    """
    nodes = faces(kind, name)
    for node in nodes:
        for companions in COMPANIONS:
            changes: dict[str, Any] = {**companions, **chosen(kind, node)}
            config = tiny(**changes)
            if not faults(config):
                plan = stacks(config)[-1]
                met = [sub.context for sub in plan.blocks[0].sublayers if sub.kind == "attn"]
                yield difference(node, nodes[0]), met[0]
                break


def difference(node: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """How the options of a face are written, where they are not those of the component as it is."""
    return ", ".join(f"{key}={_word(value)}" for key, value in node.items() if value != base[key])


def _word(value: Any) -> str:
    return (
        value["name"] if isinstance(value, Mapping) and value.keys() == {"name"} else written(value)
    )


def broken(registry: Registry, kind: str, name: str) -> list[Broken]:
    """The laws that a component breaks, by itself or with the options that are named, in the order
    of the book.
    """
    if not judged(kind):
        return []
    nodes = list(_nodes(registry, kind, name))
    said = [(difference(node, nodes[0]), registry.broken_laws(node)) for node in nodes]
    found: dict[tuple[str, str], list[str]] = {}
    for options, laws in said:
        for law, reason in laws.items():
            found.setdefault((law, str(reason)), []).append(options)
    order = list(LAWS)
    whole = [
        Broken(law, reason, () if "" in options else tuple(options))
        for (law, reason), options in found.items()
    ]
    return sorted(whole, key=lambda b: order.index(b.law))


def _nodes(registry: Registry, kind: str, name: str) -> Iterator[Mapping[str, Any]]:
    """The component as it is, with each switch turned, and with a number for each null."""
    found = faces(kind, name)
    yield from found
    for key, option in registry.options(name).items():
        if option.default is None:
            values = [example(t) for t in get_args(option.type)]
            yield from (
                {**found[0], key: value}
                for value in values
                if value is not None and value != REQUIRED
            )


def with_them(law: str) -> list[str]:
    """The laws that fall with a law."""
    return [other for other, above in UNDER.items() if law in above]
