"""Which positions, kernels and attention contexts the sublayers of a stack share."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from xformer_kit.mask import MASKS, Mask
from xformer_kit.plan.block_plan import BlockPlan, SublayerPlan
from xformer_kit.plan.differences import Node
from xformer_kit.position import POSITIONS


class PositionPlan(NamedTuple):
    """What a position encoding of a stack is built from. It belongs to the stack or to one
    layer.
    """

    node: Node
    heads: int
    head_dim: int
    dim: int  # channels of the residual stream, or of the embeddings if it is added to those
    layer: int | None  # the layer that has it; None: it belongs to the stack


class AttentionGroup(NamedTuple):
    """Mask, position and kernel of attentions that share one AttentionContext."""

    mask: Mask
    position: str  # name of the stack's position
    kernel: str  # key in StackPlan.kernels
    heads: int
    cross: bool


class KernelPlan(NamedTuple):
    """What a kernel of a stack is built from."""

    node: Node
    flex_on_cuda: bool  # whether flex may replace it on a CUDA device


class AttentionGroups(NamedTuple):
    """Positions and kernels of a stack by name, its attention groups, and for each block:
    attention -> index of its group.
    """

    positions: Mapping[str, PositionPlan]
    kernels: Mapping[str, KernelPlan]
    groups: tuple[AttentionGroup, ...]
    group_of: tuple[Mapping[str, int], ...]


class _Groups:
    """Collects the groups of a stack, block by block."""

    def __init__(self, base_position: Node, dim: int, embed_dim: int):
        self.base_position = base_position
        self.dim = dim
        self.embed_dim = embed_dim
        self.positions: dict[str, PositionPlan] = {}
        self.kernels: dict[str, KernelPlan] = {}
        self.groups: dict[AttentionGroup, int] = {}  # group -> its index

    def group(self, sub: SublayerPlan, depth: int) -> int:
        """The index of an attention's group in layer `depth`."""
        traits = sub.context.attn
        group = AttentionGroup(
            MASKS.create(sub.mask),
            self.position(sub.position, traits, depth),
            self.kernel(sub),
            traits.heads,
            sub.cross,
        )
        return self.groups.setdefault(group, len(self.groups))

    def kernel(self, sub: SublayerPlan) -> str:
        """The key of the kernel that an attention uses."""
        node = {**sub.kernel, "name": sub.kernel_name}
        options = "".join(f" {key}={value}" for key, value in node.items() if key != "name")
        key = node["name"] + options + (" or flex" if sub.flex_on_cuda else "")
        self.kernels.setdefault(key, KernelPlan(node, sub.flex_on_cuda))
        return key

    def position(self, node: Node, traits: Any, depth: int = 0) -> str:
        """The name of the position with these options: `base`, `other_1`, or `layer_3` for one
        with the option `per_layer`. Attentions share one that is added to the embeddings.
        """
        hooks = POSITIONS[node["name"]].enters
        layer = depth if node.get("per_layer") else None
        dim = self.embed_dim if "embed" in hooks else self.dim
        plan = PositionPlan(dict(node), traits.heads, traits.head_dim, dim, layer)
        for name, position in self.positions.items():
            embedded = position.node == plan.node and hooks == ("embed",)
            if embedded or position == plan:
                return name
        name = self._name(plan)
        self.positions[name] = plan
        return name

    def _name(self, plan: PositionPlan) -> str:
        """The name of a new position."""
        same_layer = sum(position.layer == plan.layer for position in self.positions.values())
        if plan.layer is not None:
            return f"layer_{plan.layer}" + (f"_{same_layer + 1}" if same_layer else "")
        if "base" not in self.positions and plan.node == dict(self.base_position):
            return "base"
        return f"other_{same_layer + ('base' not in self.positions)}"


def attention_groups(
    base: BlockPlan, blocks: Sequence[tuple[int, BlockPlan]], dim: int, embed_dim: int
) -> AttentionGroups:
    """The positions, kernels and attention groups of a stack; blocks: (first layer that calls it,
    plan) of each block that it owns. dim, embed_dim: channels of its stream and its embeddings.
    """
    base_position = base.nodes["position"]
    collected = _Groups(base_position, dim, embed_dim)
    if "embed" in POSITIONS[base_position["name"]].enters:  # also if no attention uses it
        collected.position(base_position, base.sublayers[0].context.attn)
    group_of = tuple(
        {sub.name: collected.group(sub, depth) for sub in block.sublayers if sub.kind == "attn"}
        for depth, block in blocks
    )
    groups = tuple(collected.groups)
    return AttentionGroups(collected.positions, collected.kernels, groups, group_of)
