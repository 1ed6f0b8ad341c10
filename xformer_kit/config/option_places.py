"""Places of a config that set options of components, and the layers that take them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xformer_kit.placement import normed
from xformer_kit.plan import (
    CROSS_DEFAULTS,
    KINDS,
    STACKS,
    WITH_SUBLAYER,
    BlockPlan,
    Node,
    StackPlan,
    SublayerPlan,
    as_node,
    base_nodes,
    layout_path,
    merge_sublayer,
)

Nodes = Mapping[str, Node]


class Leaf(NamedTuple):
    value: Any
    usual: Any  # what it would be, were it not said: its default, or what the difference lies over


class Place(NamedTuple):
    """Where a config says something of a kind of part, and the parts of the layers that may take
    it.
    """

    path: str
    kind: str
    node: Node  # complete
    below: Node | None  # the same without what is said here; None: defaults
    said: frozenset[str]  # its options that are said here
    takers: Sequence[Node]
    of: str  # which layers these are


def placed_options(config: Mapping[str, Any], plans: Sequence[StackPlan]) -> Iterator[Place]:
    shared = base_nodes(config)
    for kind, node in shared.items():
        takers = [taker for plan in plans for taker in _takers(config, kind, plan)]
        yield Place(kind, kind, node, None, frozenset(node) - {"name"}, takers, "layer")
    for plan in plans:
        stack = config["model"][plan.name] or {}
        base = plan.variants["base"]
        yield from _differences(config, plan, base.path, stack, (shared, base.nodes), None)
        for name, differences in (stack.get("variants") or {}).items():
            if name in plan.variants:
                block = plan.variants[name]
                yield from _differences(
                    config, plan, block.path, differences or {}, (base.nodes, block.nodes), name
                )
        yield from _laid_out(plan)


def _differences(
    config: Mapping[str, Any],
    plan: StackPlan,
    path: str,
    said: Node,
    nodes: Sequence[Nodes],
    variant: str | None,
) -> Iterator[Place]:
    """What a stack, or a variant of it, says of its parts and of those that look at another stack;
    `nodes`: what that lies over, and with it.
    """
    of = f"layer of the {plan.name}" + (f"'s variant '{variant}'" if variant else "")
    for kind in KINDS:
        if said.get(kind):
            takers = list(_takers(config, kind, plan, variant))
            below, node = (some[kind] for some in nodes)
            yield Place(
                f"{path}.{kind}", kind, node, below, frozenset(as_node(said[kind])), takers, of
            )
    if said.get("cross"):
        subs = [(block, sub) for block, sub in _subs(plan, variant) if sub.cross]
        before = (config["model"][plan.name] or {}).get("cross") if variant else None
        below = {"component": nodes[1]["attn"], "norm": nodes[1]["norm"]} | CROSS_DEFAULTS
        below |= merge_sublayer("attn", below, before)
        node, difference = (
            below | merge_sublayer("attn", below, said["cross"]),
            dict(as_node(said["cross"])),
        )
        beside = {
            kind: difference.pop(kind) for kind in WITH_SUBLAYER["attn"] if kind in difference
        }
        for kind, own in ({"attn": difference} | beside).items():
            if own:
                takers = [
                    _of(sub, kind) for block, sub in subs if kind != "norm" or _normed(block, sub)
                ]
                where, key = (
                    (f"{path}.cross", "component")
                    if kind == "attn"
                    else (f"{path}.cross.{kind}", kind)
                )
                words = frozenset(as_node(own))
                yield Place(
                    where, kind, node[key], below[key], words, takers, f"cross attention in a {of}"
                )


def _laid_out(plan: StackPlan) -> Iterator[Place]:
    """Norms that a layout gives a sublayer; its part, its mask and its position are its own,
    whatever stands around them.
    """
    for block in _blocks(plan, None):
        below = block.nodes["norm"]
        for sub in (
            sub for group in block.groups for sub in group if not sub.cross and sub.norm != below
        ):
            words = frozenset(key for key, value in sub.norm.items() if value != below.get(key))
            takers = [sub.norm] if _normed(block, sub) else []
            yield Place(
                f"{layout_path(block, sub)}.norm",
                "norm",
                sub.norm,
                below,
                words,
                takers,
                "such sublayer",
            )


def _takers(
    config: Mapping[str, Any], kind: str, plan: StackPlan, variant: str | None = None
) -> Iterator[Node]:
    """The parts of a kind in the layers of a stack, or of one of its variants, and where the stack
    itself has one.
    """
    base = plan.variants["base"]
    if kind == "placement":
        yield from (block.nodes[kind] for block in _blocks(plan, variant))
        yield {"name": base.nodes[kind]["name"]}  # it begins and ends the stream of a stack
    elif kind == "norm":
        yield from _norms(config, plan, variant)
    else:
        of = "ffn" if kind == "ffn" else "attn"
        subs = [sub for _, sub in _subs(plan, variant) if sub.kind == of]
        yield from (
            _of(sub, kind) for sub in subs if not (sub.cross and kind in ("mask", "position"))
        )
        if kind == "position" and "embed" in KINDS[kind][base.nodes[kind]["name"]].enters:
            yield base.nodes[kind]


def _norms(config: Mapping[str, Any], plan: StackPlan, variant: str | None) -> Iterator[Node]:
    """Norms of placements, of parts that norm inside, and of a stack's ends."""
    model, base = config["model"], plan.variants["base"]
    final = (
        KINDS["placement"][base.nodes["placement"]["name"]].final_norm
        if model["final_norm"] is None
        else model["final_norm"]
    )
    speaks = plan.name == [name for name in STACKS if name in model][-1]
    if final or model["embed_norm"] or (model["head_transform"] and speaks):
        yield base.nodes["norm"]
    yield from (sub.norm for block, sub in _subs(plan, variant) if _normed(block, sub))


def _normed(block: BlockPlan, sub: SublayerPlan) -> bool:
    """Whether a sublayer has a norm: of its placement, or in a part that is given the kind of norm
    of its block, where its `norms_with(options)` does not say no.
    """
    name, parts = sub.component["name"], KINDS[sub.kind]
    with_options = getattr(parts[name], "norms_with", None)
    inside = "norm" in parts.wanted(name) and (with_options is None or with_options(sub.component))
    return inside or normed(block.nodes["placement"]["name"])


def _blocks(plan: StackPlan, variant: str | None) -> Iterable[BlockPlan]:
    return {id(block): block for block in plan.blocks if variant in (None, block.variant)}.values()


def _subs(plan: StackPlan, variant: str | None) -> list[tuple[BlockPlan, SublayerPlan]]:
    return [
        (block, sub) for block in _blocks(plan, variant) for group in block.groups for sub in group
    ]


def _of(sub: SublayerPlan, kind: str) -> Node:
    return sub.component if kind == sub.kind else getattr(sub, kind)
