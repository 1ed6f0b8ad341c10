"""Places of a config that set options of components, and the layers that take them."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from xformer_kit.config.compatibility import ComponentAt, Refusals
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
    has_norms,
    layout_path,
    merge_sublayer,
)
from xformer_kit.registry import Fault

Nodes = Mapping[str, Node]


class Leaf(NamedTuple):
    value: Any
    usual: Any  # the value without this place: the default, or that of the node it differs from


class Taker(NamedTuple):
    """A component of a layer, which may have options from a place of the config."""

    node: Node
    unused: Mapping[str, Fault] = MappingProxyType({})  # option -> why it has no effect here


class Place(NamedTuple):
    """Where a config gives options of a kind of component, and the components of the layers that
    may take them.
    """

    path: str
    kind: str
    node: Node  # complete
    below: Node | None  # the same without this place; None: defaults
    given: frozenset[str]  # its options that are given here
    takers: Sequence[Taker]
    of: str  # which layers these are


def placed_options(
    config: Node, plans: Sequence[StackPlan], refused: Refusals = MappingProxyType({})
) -> Iterator[Place]:
    """Each place; refused: what components yield in `cannot`."""
    shared = base_nodes(config)
    stacks = [_Takers(config, plan, refused) for plan in plans]
    for kind, node in shared.items():
        takers = [taker for stack in stacks for taker in stack.of(kind)]
        yield Place(kind, kind, node, None, frozenset(node) - {"name"}, takers, "layer")
    for stack in stacks:
        plan = stack.plan
        given = config["model"][plan.name] or {}
        base = plan.variants["base"]
        yield from _differences(stack, base.path, given, (shared, base.nodes), None)
        for name, differences in (given.get("variants") or {}).items():
            if name in plan.variants:
                block = plan.variants[name]
                nodes = base.nodes, block.nodes
                yield from _differences(stack, block.path, differences or {}, nodes, name)
        yield from _laid_out(stack)


def _differences(
    stack: "_Takers", path: str, given: Node, nodes: Sequence[Nodes], variant: str | None
) -> Iterator[Place]:
    """What a stack, or a variant of it, gives its components and those that attend to another
    stack; `nodes`: without it, and with it.
    """
    of = f"layer of the {stack.plan.name}" + (f"'s variant '{variant}'" if variant else "")
    for kind in KINDS:
        if given.get(kind):
            below, node = (some[kind] for some in nodes)
            words = frozenset(as_node(given[kind]))
            takers = list(stack.of(kind, variant))
            yield Place(f"{path}.{kind}", kind, node, below, words, takers, of)
    if given.get("cross"):
        yield from _cross(stack, path, given["cross"], nodes[1], variant, of)


def _cross(
    stack: "_Takers", path: str, given: Any, nodes: Nodes, variant: str | None, of: str
) -> Iterator[Place]:
    """What a stack, or a variant of it, gives the attentions to another stack."""
    before = (stack.config["model"][stack.plan.name] or {}).get("cross") if variant else None
    below: dict[str, Any] = {"component": nodes["attn"], "norm": nodes["norm"]} | CROSS_DEFAULTS
    below |= merge_sublayer("attn", below, before)
    node = below | merge_sublayer("attn", below, given)
    difference = dict(as_node(given))
    further = {kind: difference.pop(kind) for kind in WITH_SUBLAYER["attn"] if kind in difference}
    subs = [(block, sub) for block, sub in stack.subs(variant) if sub.cross]
    for kind, own in ({"attn": difference} | further).items():
        if not own:
            continue
        takers = [
            stack.taker(block, sub, kind)
            for block, sub in subs
            if kind != "norm" or _normed(block, sub)
        ]
        here, key = f"{path}.cross", "component"
        if kind != "attn":
            here, key = f"{here}.{kind}", kind
        words = frozenset(as_node(own))
        yield Place(here, kind, node[key], below[key], words, takers, f"cross attention in a {of}")


def _laid_out(stack: "_Takers") -> Iterator[Place]:
    """What a layout gives a sublayer: options of its component, and its mask, position and norm."""
    for block, sub in stack.subs():
        for kind in (sub.kind, *WITH_SUBLAYER[sub.kind]) if not sub.cross else ():
            node, below = sub.context.options[kind], block.nodes[kind]
            if node == below:
                continue
            words = frozenset(key for key, value in node.items() if value != below.get(key))
            has = kind != "norm" or _normed(block, sub)
            takers = [stack.taker(block, sub, kind)] if has else []
            path = layout_path(block, sub) + ("" if kind == sub.kind else f".{kind}")
            yield Place(path, kind, node, below, words, takers, "such sublayer")


class _Takers:
    """The components of a stack that may take options from places of the config."""

    def __init__(self, config: Node, plan: StackPlan, refused: Refusals):
        self.config = config
        self.plan = plan
        self.refused = refused

    def of(self, kind: str, variant: str | None = None) -> Iterator[Taker]:
        """Those of a kind in the layers, or in those of a variant, and where the stack itself has
        one.
        """
        base = self.plan.base.nodes[kind]
        if kind == "placement":
            yield from (self.taker(block, sub, kind) for block, sub in self.subs(variant))
            yield Taker({"name": base["name"]})  # it begins and ends the stream of a stack
        elif kind == "norm":
            yield from self._norms(variant)
        else:
            of = "ffn" if kind == "ffn" else "attn"
            for block, sub in self.subs(variant):
                if sub.kind == of and not (sub.cross and kind in ("mask", "position")):
                    yield self.taker(block, sub, kind)
            if kind == "position" and "embed" in KINDS[kind][base["name"]].enters:
                yield Taker(base)

    def taker(self, block: BlockPlan, sub: SublayerPlan, kind: str) -> Taker:
        at = ComponentAt(self.plan.name, block.variant, sub.name, kind)
        unused = {fault.path: fault for fault in self.refused.get(at, ()) if fault.unused}
        return Taker(sub.context.options[kind], unused)

    def subs(self, variant: str | None = None) -> list[tuple[BlockPlan, SublayerPlan]]:
        """The sublayers of each block, or of those of a variant."""
        blocks = [b for b in self.plan.blocks if variant in (None, b.variant)]
        different = {id(block): block for block in blocks}.values()
        return [(block, sub) for block in different for sub in block.sublayers]

    def _norms(self, variant: str | None) -> Iterator[Taker]:
        """Norms of placements, of components that norm inside, and of a stack's ends."""
        model, plan = self.config["model"], self.plan
        output = plan.name == [name for name in STACKS if name in model][-1]
        if plan.final_norm or plan.embed_norm or (model["head_transform"] and output):
            yield Taker(plan.base.nodes["norm"])
        for block, sub in self.subs(variant):
            if _normed(block, sub):
                yield Taker(sub.norm)


def _normed(block: BlockPlan, sub: SublayerPlan) -> bool:
    """Whether a sublayer has a norm: of its placement, or in a component that is given the kind of
    norm of its block, if its `norms_with(options)` is true.
    """
    name, components = sub.component["name"], KINDS[sub.kind]
    inside = "norm" in components.model_arguments(name)
    if inside and hasattr(components[name], "norms_with"):
        inside = components[name].norms_with(components.with_inner(sub.component))
    return inside or has_norms(block.nodes["placement"])
