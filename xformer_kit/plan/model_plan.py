"""The plan of a model: a config as plain typed data. Nothing is built."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xformer_kit.plan.attention_groups import AttentionGroups, attention_groups
from xformer_kit.plan.block_plan import BlockPlan
from xformer_kit.plan.differences import Node


@dataclass(frozen=True)
class StackPlan:
    """Options of a stack and the plans of its blocks. A plan builds no modules."""

    name: str
    dim: int
    embed_dim: int  # channels of the embeddings
    map_first: bool  # whether their map to `dim` comes before positions and norm
    max_len: int
    blocks: tuple[BlockPlan, ...]  # one per layer; layers of one variant share the plan
    variants: Mapping[str, BlockPlan]  # those that are used, and "base"
    # for each layer the index of its block: 0, 1, 2, ... if none is shared
    block_index: tuple[int, ...]
    embed_norm: Node | None
    final_norm: Node | None
    dropout: float
    multiplier: float  # of what sublayers add to the residual stream
    loops: int  # times that the layers are repeated; `blocks` and `block_index` hold all of them
    train_loops: tuple[int, int]  # least and most loops in training
    breaks: Mapping[str, str] = field(default_factory=dict)  # law -> component and reason
    cross_breaks: Mapping[str, str] = field(default_factory=dict)  # of cross attentions only

    @cached_property
    def attention(self) -> AttentionGroups:
        """Its positions, kernels and attention groups. The config must be valid."""
        return attention_groups(self.base, self.own_blocks, self.dim, self.added_dim)

    @property
    def added_dim(self) -> int:
        """Channels of positions that are added to the embeddings, and of their norm."""
        return self.dim if self.map_first else self.embed_dim

    @property
    def base(self) -> BlockPlan:
        return self.variants["base"]

    @property
    def placement(self) -> Node:
        return self.base.nodes["placement"]

    @property
    def own_blocks(self) -> list[tuple[int, BlockPlan]]:
        """Each block that is owned, with the first layer that calls it."""
        firsts = [self.block_index.index(block) for block in range(max(self.block_index) + 1)]
        return [(depth, self.blocks[depth]) for depth in firsts]


@dataclass(frozen=True)
class ModelPlan:
    """A model: an embedding, one or two stacks and a head."""

    options: Node  # of `model`, such as those of the embedding and the head
    stacks: tuple[StackPlan, ...]
    init: Node
    seed: int
    extras: Mapping[str, Node]  # name -> options, complete

    @property
    def output(self) -> StackPlan:
        """The stack whose output the head reads."""
        return self.stacks[-1]

    @property
    def depths(self) -> dict[str, int]:
        """Stack -> number of layers."""
        return {stack.name: len(stack.blocks) for stack in self.stacks}
