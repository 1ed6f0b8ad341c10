"""Options of the model that would change nothing, since there is nothing that they could change.

A part says it of its own by the classmethod `vain(context)`, which yields (option, why and the way
out). An option that several sublayers take from one place of the config is refused where it changes
nothing in all of them: a norm behind rotation stays, where some layers rotate. What stands at its
default was asked for by nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from xformer_kit.plan import (
    BESIDE,
    KINDS,
    BlockPlan,
    StackPlan,
    SublayerPlan,
    base_nodes,
    depths,
    laid_at,
    stacks,
)
from xformer_kit.registry import Context, Registry

Key = tuple[str, str, str]  # stack, variant, name of the sublayer


class Looked(NamedTuple):
    """A sublayer of a variant, and what it meets."""

    plan: StackPlan
    block: BlockPlan
    sub: SublayerPlan
    context: Context


def faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Skips where no stack has a layer behind its first, and vectors for networks where there are
    none.
    """
    model = config["model"]
    for option in ("reinject", "unet"):
        if model.get(option) and max(depths(config).values()) < 2:
            got = f"got {model[option]!r}. Try model.layers=2, or null."
            yield f"model.{option}: leads to a later layer, and there is none; {got}"
    if model.get("deep_embed"):
        blocks = {id(block): block for plan in stacks(config) for block in plan.blocks}.values()
        if not any(
            sub.kind == "ffn" for block in blocks for group in block.groups for sub in group
        ):
            yield (
                "model.deep_embed: multiplies feed-forward networks, and no layer has one; got"
                " true. Set it to false."
            )


def options(config: Mapping[str, Any], looked: Iterable[Looked]) -> Iterator[str]:
    """Options of parts that change nothing in any of the sublayers that take them from one
    place.
    """
    looked = list(looked)
    plans = {one.plan.name: one.plan for one in looked}
    variants = {name: {block.variant for block in plan.blocks} for name, plan in plans.items()}
    blocks = {name: len(set(plan.calls)) for name, plan in plans.items()}
    used = [one for one in looked if one.block.variant in variants[one.plan.name]]
    shared, paired = base_nodes(config), _paired(used)
    told, doubted = [], dict[tuple[str, str], None]()
    for one in used:
        facts = {**one.context.facts, "paired": paired[_key(one)], "blocks": blocks[one.plan.name]}
        facts["parallel"] = next(
            tuple(sub.kind for sub in group) for group in one.block.groups if one.sub in group
        )
        context = replace(one.context, facts=facts)
        for kind in (one.sub.kind, *BESIDE[one.sub.kind], "placement"):
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


def _key(one: Looked) -> Key:
    return one.plan.name, one.block.variant, one.sub.name


def _origin(one: Looked, kind: str, option: str, shared: Mapping[str, Any]) -> str | None:
    """The config path from which a sublayer has a value, the outermost that has the same; None
    where it is the default.
    """
    base, own = one.plan.variants["base"], one.context.options[kind]
    value = _value(kind, own, option)
    if value == _value(kind, KINDS[kind].defaults(own["name"]), option):
        return None
    inside = laid_at(one.block, one.sub) + ("" if kind == one.sub.kind else f".{kind}")
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


def _paired(used: Iterable[Looked]) -> dict[Key, set[str]]:
    """Sublayer -> what it hands to a later one that takes it, or takes of an earlier one.

    An attention's facts name it under `across`: name -> (what two must have in common, the first
    layer that takes it).
    """
    used, found = list(used), dict[Key, set[str]]()
    hands: dict[
        tuple[str, str], list[tuple[Key, str, Any, int]]
    ] = {}  # stack and variant -> what its attentions hand on
    for one in used:
        found[_key(one)] = set()
        across = one.context.facts["attn"].get("across", {}) if one.sub.kind == "attn" else {}
        for name, (common, first) in across.items():
            said = (_key(one), name, (name, common, one.sub.cross), first)
            hands.setdefault(_key(one)[:2], []).append(said)
    for plan in {one.plan.name: one.plan for one in used}.values():
        held, begun = (
            dict[Any, set[Key]](),
            dict[int, int](),
        )  # who has handed it on; block -> the layer that calls it first
        for layer, (block, at) in enumerate(zip(plan.blocks, plan.calls, strict=True)):
            depth = begun.setdefault(at, layer)
            for key, name, common, first in hands.get((plan.name, block.variant), ()):
                before = held.setdefault(common, set())
                if before and depth >= first:
                    for one_of in (*before, key):
                        found[one_of].add(name)
                before.add(key)
    return found
