"""A model's modules as a tree with parameters and FLOPs; equal layers are folded into one node."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from torch import nn

from xformer_kit.inspect import parameters
from xformer_kit.inspect.components import as_yaml
from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.model.block import Block
from xformer_kit.model.head import LogitScaling
from xformer_kit.model.model import Model
from xformer_kit.plan import CARRIED, KINDS, BlockPlan, StackPlan, SublayerPlan, has_norms
from xformer_kit.position import POSITIONS
from xformer_kit.registry import AttentionTraits


class ModuleNode(NamedTuple):
    """A module, or `times` equal layers; the figures are those of one of them."""

    name: str
    description: str
    parameters: int
    flops: float | None  # forward, per token; None if unknown
    children: tuple["ModuleNode", ...] = ()
    times: int = 1


def tree(model: Model, plans: list[StackPlan], flops: Mapping[str, float] | None) -> ModuleNode:
    """Returns the tree of the model's modules.

    flops: forward FLOPs per token by module name, from `flops.count`; None if unknown.
    """
    return _TreeBuilder(model, flops).root(plans)


def fold_equal(blocks: Iterable[tuple[list[int], ModuleNode]]) -> list[ModuleNode]:
    """Folds equal blocks into one node, named after all layers that call one of them; in the order
    of first appearance. blocks: (layers that call the block, its node).
    """
    return [
        node._replace(name=format_ranges(sorted(chain(*layers))), times=len(layers))
        for node, layers in group_equal(blocks).items()
    ]


class _TreeBuilder:
    """Visits each module once; a shared parameter is counted in the first module that has it."""

    def __init__(self, model: Model, flops: Mapping[str, float] | None):
        self.model = model
        self.flops = flops
        self.counted = set[int]()  # ids of parameters

    def cost(self, path: str) -> float | None:
        """FLOPs of a module; None if unknown."""
        return None if self.flops is None else self.flops.get(path, 0.0)

    def root(self, plans: list[StackPlan]) -> ModuleNode:
        model = self.model
        scale = f" x {model.embed_scale:.4g}, the scale" if model.embed_scale != 1.0 else ""
        children = []
        for name in ("embed", "source_embed", "token_type"):
            if (embed := getattr(model, name)) is not None:
                text = _describe(embed) + (scale if name.endswith("embed") else "")
                children.append(self.module(name, embed, text))
        children += map(self.stack, plans)
        tied = ["embed transposed"] if model.head.weight is model.embed.weight else []
        text = ", ".join(
            [f"{model.vocab_size} logits", *tied, *_logit_shape(model.head.logit_scaling)]
        )
        children.append(self.module("head", model.head, text))
        cost = None if self.flops is None else sum(child.flops or 0 for child in children)
        return ModuleNode("model", "", parameters.count(model), cost, tuple(children))

    def stack(self, plan: StackPlan) -> ModuleNode:
        stack: Any = self.model.get_submodule(plan.name)
        self.variants = plan.variants
        self.position = plan.base.nodes["position"]  # a sublayer shows only another position
        norm = _component(plan.base.nodes["norm"], "norm")
        children = []
        for name, position in stack.position.items():
            text, label = POSITIONS.name_of(type(position)) or "", f"position.{name}"
            if name == "base":
                text, label = _component(self.position, "position"), "position"
            elif text == "none":
                continue
            node = self.module(f"{plan.name}.position.{name}", position, text)
            children.append(node._replace(name=label))
        modules = [("embed_norm", stack.embed_norm, norm), ("project", stack.project, "")]
        modules += [(f"extra.{name}", extra, "extra") for name, extra in stack.extra.items()]
        children += self.with_parameters(plan.name, modules)
        blocks = []
        for i, (_, block) in enumerate(plan.own_blocks):
            layers = [depth for depth, called in enumerate(plan.block_index) if called == i]
            blocks.append((layers, self.block(f"{plan.name}.{i}", block, len(layers))))
        children += fold_equal(blocks)
        children += self.with_parameters(plan.name, [("norm", stack.norm, norm)])
        text = f"{len(plan.blocks)} layers"
        if len(blocks) < len(plan.blocks):
            text += f", {len(blocks)} with weights of their own"
        return ModuleNode(plan.name, text, _total(children), self.cost(plan.name), tuple(children))

    def with_parameters(
        self, path: str, modules: Iterable[tuple[str, nn.Module, str]]
    ) -> Iterator[ModuleNode]:
        """The nodes of those modules (name, module, description) that have parameters."""
        for name, module, text in modules:
            if parameters.count(module):
                yield self.module(f"{path}.{name}", module, text)

    def block(self, path: str, plan: BlockPlan, calls: int) -> ModuleNode:
        """calls: number of layers that share the block; its FLOPs are those of all of them."""
        block: Any = self.model.get_submodule(path)
        children = []
        for group, (key, placement) in zip(plan.groups, block.placement.items(), strict=True):
            sublayers = [self.sublayer(f"{path}.{sub.name}", sub) for sub in group]
            cost = self.cost(f"{path}.placement.{key}")
            if cost is not None:  # the sublayers run inside the placement
                cost = max(0.0, cost - sum(sub.flops or 0 for sub in sublayers))
            text = _component(plan.nodes["placement"], "placement")
            if has_norms(plan.nodes["placement"]):
                text += f", norm {_component(group[0].norm, 'norm')}"
            if len(group) > 1:
                text += f", {' and '.join(sub.name for sub in group)} in parallel"
            size = parameters.count_new(placement, self.counted)
            children += [ModuleNode("placement", text, size, cost), *sublayers]
        notes = [plan.variant] if plan.variant != "base" else []
        notes += [f"called {calls} times"] if calls > 1 else []
        size = _total(children)
        return ModuleNode("", ", ".join(notes), size, self.cost(path), tuple(children))

    def sublayer(self, path: str, sub: SublayerPlan) -> ModuleNode:
        options = {key: value for key, value in sub.component.items() if key not in CARRIED}
        text = _component(options, sub.kind)
        if "heads" in sub.component:
            text += _heads(sub.context.attn, "rotate" in sub.context.position.enters)
        text += f", times {sub.multiplier:g}" if sub.multiplier != 1.0 else ""
        node = self.module(path, self.model.get_submodule(path), text)
        if sub.kind == "ffn":
            return node
        kinds = ["mask"] if sub.position == self.position else ["mask", "position"]
        parts = (
            ModuleNode(kind, _component(getattr(sub, kind), kind), 0, self.cost(""))
            for kind in kinds
        )
        return node._replace(children=(*parts, *node.children))

    def module(self, path: str, module: nn.Module, text: str = "") -> ModuleNode:
        """A module with those of its modules that have parameters or FLOPs."""
        children, blocks = list[ModuleNode](), list[tuple[list[int], ModuleNode]]()
        for name, child in module.named_children():
            child_path = f"{path}.{name}"
            if isinstance(child, Block) and name.isdigit():  # a block of an extra
                block = self.block(child_path, self.variants[child.variant], 1)
                blocks.append(([int(name)], block))
            elif parameters.count(child) or self.cost(child_path):
                children.append(self.module(child_path, child))
        children += fold_equal(blocks)
        size = _total(children) + parameters.count_new(module, self.counted)
        cost = self.cost(path)
        if cost == 0:  # only its modules are called
            cost = sum(child.flops or 0.0 for child in children)
        name = path.rpartition(".")[2]
        return ModuleNode(name, text or _describe(module), size, cost, tuple(children))


def _component(node: Mapping[str, Any], kind: str) -> str:
    """A component's name and its options that differ from the defaults, as name option=value."""
    defaults = KINDS[kind].defaults(node["name"])
    changed = ((key, value) for key, value in node.items() if defaults.get(key) != value)
    return " ".join([node["name"], *(f"{key}={as_yaml(value)}" for key, value in changed)])


def _total(children: Iterable[ModuleNode]) -> int:
    return sum(child.parameters * child.times for child in children)


def _logit_shape(shape: LogitScaling) -> Iterator[str]:
    """How the logits are scaled and bounded."""
    if isinstance(shape.scale, str):
        yield "x a factor of each"
    elif shape.scale != 1.0:
        yield f"x {shape.scale:.4g}"
    if shape.softcap is not None:
        yield f"bounded by {shape.softcap:.4g}"


def _describe(module: nn.Module) -> str:
    if isinstance(module, nn.Linear):
        bias = "" if module.bias is None else " + bias"
        lora_a: Any = getattr(module, "lora_a", None)
        adapter = "" if lora_a is None else f", rank {len(lora_a)}"
        return f"{module.in_features} -> {module.out_features}{bias}{adapter}"
    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings} x {module.embedding_dim}"
    options = module.extra_repr()
    return f"{type(module).__name__}({options})" if options else type(module).__name__


def _heads(traits: AttentionTraits, rotated: bool) -> str:
    """Sizes of the heads of an attention whose position rotates some channels, all, or none."""
    text = f", {traits.heads} heads of {traits.width}"
    text += f", values of {traits.v_head_dim}" if traits.v_head_dim != traits.width else ""
    shared = traits.kv_heads != traits.heads
    if traits.head_dim == traits.width:
        return text + (f", {traits.kv_heads} of keys" if shared else "")
    keys = f" with {traits.kv_heads} key head{'s'[: traits.kv_heads > 1]}" if shared else ""
    return text + (f", {traits.head_dim} channels rotated{keys}" if rotated else "")
