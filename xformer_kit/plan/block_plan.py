"""The plan of a block and of its sublayers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from xformer_kit.kernel import cannot_train, choose
from xformer_kit.plan.differences import Node, SublayerNodes
from xformer_kit.registry import Context


@dataclass(frozen=True, kw_only=True)
class SublayerPlan(SublayerNodes):
    """One sublayer: its name in the block, its component, the components around it, and their
    traits.
    """

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


def layout_path(block: BlockPlan, sub: SublayerPlan) -> str:
    """The config path of a sublayer's own differences."""
    return f"{block.path}.cross" if sub.cross else f"{block.path}.layout.{sub.name}"


def provenance_of(kind: str, block: BlockPlan) -> str:
    """The config path that set a block's component of a kind."""
    paths = (path for key, path in block.provenance.items() if key.startswith(f"{kind}."))
    return next(paths, kind)
