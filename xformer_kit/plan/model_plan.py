"""The plan of a model: a config as plain typed data. Nothing is built."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from xformer_kit.kernel import cannot_train, choose
from xformer_kit.plan.attention_groups import AttentionGroups, attention_groups
from xformer_kit.plan.differences import Node
from xformer_kit.registry import Context


@dataclass(frozen=True)
class SublayerPlan:
    """One sublayer: its name in the block, its component, and the components around it."""

    name: str  # attn, cross, ffn, ffn_2, ...
    kind: str  # attn or ffn
    component: Node
    mask: Node
    position: Node
    kernel: Node
    norm: Node  # of its placement, and of the norms inside it
    cross: bool
    multiplier: float  # of what it adds to the residual stream
    context: Context  # traits of its components, and what it is composed with

    @cached_property
    def kernel_name(self) -> str:
        """The kernel that runs: the one named, or for `auto` the fastest that can compute it."""
        return choose(self.kernel["name"], self.context)

    @cached_property
    def flex_on_cuda(self) -> bool:
        """Whether flex may replace sdpa on a CUDA device."""
        if self.kernel["name"] != "auto" or self.kernel_name != "sdpa":
            return False
        return cannot_train("flex", replace(self.context, device="cuda")) is None


@dataclass(frozen=True)
class BlockPlan:
    """One block: groups of sublayers that run one after another; the sublayers of a group run in
    parallel on one input.
    """

    variant: str  # "base", or the name of a variant
    path: str  # config path of its differences
    nodes: Mapping[str, Node]  # kind -> complete node of the block's component
    groups: tuple[tuple[SublayerPlan, ...], ...]
    provenance: Mapping[str, str]  # "attn.heads" -> config path of the difference that set it

    @property
    def sublayers(self) -> list[SublayerPlan]:
        return [sub for group in self.groups for sub in group]


@dataclass(frozen=True)
class StackPlan:
    """One stack of blocks over one residual stream."""

    name: str
    dim: int
    embed_dim: int  # channels of the embeddings
    max_len: int
    blocks: tuple[BlockPlan, ...]  # one per layer; layers of one variant share the plan
    variants: Mapping[str, BlockPlan]  # those that are used, and "base"
    calls: tuple[int, ...]  # for each layer the block that it calls: 0, 1, 2, ... if none is shared
    embed_norm: Node | None
    final_norm: Node | None
    dropout: float
    multiplier: float  # of what sublayers add to the residual stream
    breaks: Mapping[str, str] = field(default_factory=dict)  # law -> component and reason
    cross_breaks: Mapping[str, str] = field(default_factory=dict)  # of cross attentions only

    @cached_property
    def attention(self) -> AttentionGroups:
        """Its positions, kernels and attention groups. The config must be valid."""
        return attention_groups(self)

    @property
    def base(self) -> BlockPlan:
        return self.variants["base"]

    @property
    def placement(self) -> Node:
        return self.base.nodes["placement"]

    @property
    def own_blocks(self) -> list[tuple[int, BlockPlan]]:
        """Each block that is owned, with the first layer that calls it."""
        firsts = [self.calls.index(at) for at in range(max(self.calls) + 1)]
        return [(depth, self.blocks[depth]) for depth in firsts]


@dataclass(frozen=True)
class EmbeddingPlan:
    """Embeddings of tokens, and of token types."""

    dim: int  # channels
    scale: float
    vocab_multiple: int  # the number of rows is rounded up to a multiple
    shared: bool  # whether source and target have one matrix
    token_types: int
    dropout: float


@dataclass(frozen=True)
class HeadPlan:
    """The map from hidden states to logits."""

    tied: bool  # whether its weight is the embedding
    dim: int  # channels that it reads
    transform: bool  # dense, gelu and norm before it
    norm: Node
    bias: bool
    scale: float | Literal["learned"]
    softcap: float | None


@dataclass(frozen=True)
class ModelPlan:
    """A model: an embedding, one or two stacks and a head."""

    dim: int
    embedding: EmbeddingPlan
    stacks: tuple[StackPlan, ...]
    head: HeadPlan
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


def layout_path(block: BlockPlan, sub: SublayerPlan) -> str:
    """The config path of a sublayer's own differences."""
    return f"{block.path}.cross" if sub.cross else f"{block.path}.layout.{sub.name}"


def provenance_of(kind: str, block: BlockPlan) -> str:
    """The config path that set a block's component of a kind."""
    paths = (path for key, path in block.provenance.items() if key.startswith(f"{kind}."))
    return next(paths, kind)
