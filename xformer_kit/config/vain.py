"""Options of the model that would change nothing, since there is nothing that they could change.

A part says it of its own by the classmethod `vain(context)`, which yields (option, why and the way
out). An option that several sublayers take from one place of the config is refused where it changes
nothing in all of them: a norm behind rotation stays, where some layers rotate. What stands at its
default was asked for by nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.plan import (
    KINDS,
    WITH_SUBLAYER,
    BlockPlan,
    StackPlan,
    SublayerPlan,
    base_nodes,
    layout_path,
)
from xformer_kit.registry import Context, Registry


class Looked(NamedTuple):
    """A sublayer of a variant, and what it meets."""

    plan: StackPlan
    block: BlockPlan
    sub: SublayerPlan

    @property
    def context(self) -> Context:
        return self.sub.context


def options(config: Mapping[str, Any], looked: Iterable[Looked]) -> Iterator[str]:
    """Options of parts that change nothing in any of the sublayers that take them from one
    place.
    """
    looked = list(looked)
    plans = {one.plan.name: one.plan for one in looked}
    variants = {name: {block.variant for block in plan.blocks} for name, plan in plans.items()}
    used = [one for one in looked if one.block.variant in variants[one.plan.name]]
    shared = base_nodes(config)
    told, doubted = [], dict[tuple[str, str], None]()
    for one in used:
        context = one.context
        for kind in (one.sub.kind, *WITH_SUBLAYER[one.sub.kind], "placement"):
            part = KINDS[kind][context.names[kind]]
            said = dict(part.vain(context)) if hasattr(part, "vain") else {}
            doubted |= {(kind, option): None for option in said}
            told.append((one, kind, said))
    verdicts: dict[str, list[str | None]] = {}
    for one, kind, said in told:
        for option in [option for other, option in doubted if other == kind]:
            if (path := _origin(one, kind, option, shared)) is not None:
                verdicts.setdefault(f"{path}.{option}", []).append(said.get(option))
    for path, reasons in verdicts.items():
        if all(reasons):
            yield f"{path}: {str(reasons[0]).rstrip('.')}."


def _origin(one: Looked, kind: str, option: str, shared: Mapping[str, Any]) -> str | None:
    """The config path from which a sublayer has a value, the outermost that has the same; None
    where it is the default.
    """
    base, own = one.plan.variants["base"], one.context.options[kind]
    value = _value(kind, own, option)
    if value == _value(kind, KINDS[kind].defaults(own["name"]), option):
        return None
    inside = layout_path(one.block, one.sub) + ("" if kind == one.sub.kind else f".{kind}")
    laid = {
        kind: shared[kind],
        f"{base.path}.{kind}": base.nodes[kind],
        f"{one.block.path}.{kind}": one.block.nodes[kind],
    }
    same = (
        path
        for path, node in laid.items()
        if node["name"] == own["name"] and _value(kind, node, option) == value
    )
    return next(same, inside)


def _value(kind: str, node: Mapping[str, Any], option: str) -> Any:
    """What a node says of an option such as values.residual; None where it has none."""
    registry: Registry = KINDS[kind]
    value: Any = node
    for word in option.split("."):
        inner = registry.inner(value["name"]).get(word)
        value = value.get(word)
        if inner is None or value is None:
            break
        value, registry = inner.complete(value), inner
    return value
