"""The places of a config that set options of components, and the layers that each applies to."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from xformer_kit.config.faults.component_faults import ComponentAt, Refusals
from xformer_kit.config.faults.stack_faults import split_by_kind
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


class LayerComponent(NamedTuple):
    """A component of a layer, to which the options of a place may apply."""

    node: Node
    unused: Mapping[str, Fault] = MappingProxyType(
        {}
    )  # option -> why it has no effect in the layer


class Place(NamedTuple):
    """A config path that sets options of a kind of component."""

    path: str
    kind: str
    node: Node  # complete
    base: Node | None  # the node without the options set here; None: the defaults
    options: frozenset[str]  # set here
    components: Sequence[LayerComponent]  # in the layers to which the place applies
    layers: str  # those layers, as a phrase


def option_places(
    config: Node, plans: Sequence[StackPlan], refused: Refusals = MappingProxyType({})
) -> Iterator[Place]:
    """Yields each place of a config; refused: what components yield in `cannot`."""
    shared = base_nodes(config)
    stacks = [_Stack(config, plan, refused) for plan in plans]
    for kind, node in shared.items():
        components = [component for stack in stacks for component in stack.components(kind)]
        yield Place(kind, kind, node, None, frozenset(node) - {"name"}, components, "layer")
    for stack in stacks:
        base = stack.plan.base
        yield from _difference_places(stack, base.path, stack.node, (shared, base.nodes), None)
        for name, difference in (stack.node.get("variants") or {}).items():
            if block := stack.plan.variants.get(name):
                nodes = base.nodes, block.nodes
                yield from _difference_places(stack, block.path, difference or {}, nodes, name)
        yield from _layout_places(stack)


def _difference_places(
    stack: "_Stack", path: str, differences: Node, nodes: tuple[Nodes, Nodes], variant: str | None
) -> Iterator[Place]:
    """Yields the places of a stack's or a variant's differences; nodes: without them, with them."""
    layers = f"layer of the {stack.plan.name}" + (f"'s variant '{variant}'" if variant else "")
    for kind in KINDS:
        if difference := differences.get(kind):
            base, node = (of_kind[kind] for of_kind in nodes)
            options = frozenset(as_node(difference))
            components = list(stack.components(kind, variant))
            yield Place(f"{path}.{kind}", kind, node, base, options, components, layers)
    if difference := differences.get("cross"):
        yield from _cross_places(stack, path, difference, nodes[1], variant, layers)


def _cross_places(
    stack: "_Stack", path: str, difference: Any, nodes: Nodes, variant: str | None, layers: str
) -> Iterator[Place]:
    """Yields the places in the node `cross` of a stack or a variant that set options of cross
    attentions, one per kind of component.

    difference: the node `cross`. nodes: kind -> complete options of the stack or variant.
    layers: a phrase for messages.
    """
    earlier = stack.node.get("cross") if variant else None
    base: dict[str, Any] = {"component": nodes["attn"], "norm": nodes["norm"]} | CROSS_DEFAULTS
    base |= merge_sublayer("attn", base, earlier)
    merged = base | merge_sublayer("attn", base, difference)
    crosses = [(block, sub) for block, sub in stack.sublayers(variant) if sub.cross]
    for kind, own in split_by_kind(as_node(difference), "attn").items():
        if own:
            is_attn = kind == "attn"
            key = "component" if is_attn else kind
            yield Place(
                path=f"{path}.cross" if is_attn else f"{path}.cross.{kind}",
                kind=kind,
                node=merged[key],
                base=base[key],
                options=frozenset(as_node(own)),
                components=stack.in_sublayers(crosses, kind),
                layers=f"cross attention in a {layers}",
            )


def _layout_places(stack: "_Stack") -> Iterator[Place]:
    """Yields the places of a layout's sublayers: options of a sublayer's component, and of its
    mask, position and norm.
    """
    for block, sub in stack.sublayers():
        for kind in (sub.kind, *WITH_SUBLAYER[sub.kind]) if not sub.cross else ():
            node, base = sub.context.options[kind], block.nodes[kind]
            if node != base:
                path = layout_path(block, sub) + ("" if kind == sub.kind else f".{kind}")
                options = frozenset(key for key, value in node.items() if value != base.get(key))
                components = stack.in_sublayers([(block, sub)], kind)
                yield Place(path, kind, node, base, options, components, "such sublayer")


class _Stack:
    """A stack of a config, and the components of its layers."""

    def __init__(self, config: Node, plan: StackPlan, refused: Refusals):
        self.model = config["model"]
        self.node = self.model[plan.name] or {}
        self.plan = plan
        self.refused = refused

    def components(self, kind: str, variant: str | None = None) -> Iterator[LayerComponent]:
        """Yields the components of a kind that are set for whole layers, in all layers or in those
        of a variant; with the stack's own, such as its final norm.
        """
        base = self.plan.base.nodes[kind]
        subs = self.sublayers(variant)
        if kind not in ("norm", "placement"):
            sublayer_kind = "ffn" if kind == "ffn" else "attn"
            own_only = kind in ("mask", "position")  # a cross attention has others
            subs = [
                (block, sub)
                for block, sub in subs
                if sub.kind == sublayer_kind and not (sub.cross and own_only)
            ]
        yield from self.in_sublayers(subs, kind)
        if kind == "placement":
            yield LayerComponent({"name": base["name"]})  # at the start and the end of the stack
        elif (kind == "norm" and self._has_own_norm()) or (
            kind == "position" and "embed" in KINDS[kind][base["name"]].enters
        ):
            yield LayerComponent(base)

    def in_sublayers(
        self, sublayers: Sequence[tuple[BlockPlan, SublayerPlan]], kind: str
    ) -> list[LayerComponent]:
        """Returns the components of a kind in these sublayers; no norm for one without a norm."""
        found = []
        for block, sub in sublayers:
            if kind != "norm" or _has_norm(block, sub):
                at = ComponentAt(self.plan.name, block.variant, sub.name, kind)
                unused = {fault.path: fault for fault in self.refused.get(at, ()) if fault.unused}
                found.append(LayerComponent(sub.context.options[kind], unused))
        return found

    def sublayers(self, variant: str | None = None) -> list[tuple[BlockPlan, SublayerPlan]]:
        """Returns the sublayers of each different block, or of those of a variant."""
        blocks = {id(b): b for b in self.plan.blocks if variant in (None, b.variant)}
        return [(block, sub) for block in blocks.values() for sub in block.sublayers]

    def _has_own_norm(self) -> bool:
        """Whether the stack has a norm at its start or end, or the head after it has one."""
        is_output = self.plan.name == [name for name in STACKS if name in self.model][-1]
        head_norm = self.model["head_transform"] and is_output
        return bool(self.plan.final_norm or self.plan.embed_norm or head_norm)


def _has_norm(block: BlockPlan, sub: SublayerPlan) -> bool:
    """Whether a sublayer has a norm: of its placement, or in a component that gets the kind of norm
    of its block, if its `builds_block_norm(options)` is true.
    """
    if has_norms(block.nodes["placement"]):
        return True
    name, components = sub.component["name"], KINDS[sub.kind]
    inside = "norm" in components.model_arguments(name)
    if inside and hasattr(components[name], "builds_block_norm"):
        inside = components[name].builds_block_norm(components.with_inner(sub.component))
    return inside
