"""How is a model built? Its modules as a tree with parameters and FLOPs; equal layers are folded
into one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from xformer_kit.inspect import parameters
from xformer_kit.inspect.components import written
from xformer_kit.model.block import Block
from xformer_kit.model.head import LogitScaling
from xformer_kit.model.model import Model
from xformer_kit.plan import CARRIED, KINDS, BlockPlan, StackPlan, SublayerPlan, has_norms
from xformer_kit.position import POSITIONS


class Node(NamedTuple):
    """A module of the tree. A layer that stands for `times` equal ones holds the figures of one."""

    name: str
    what: str
    parameters: int
    flops: float | None  # forward, per token; None where they are not known
    children: tuple["Node", ...] = ()
    times: int = 1


def tree(model: Model, plans: list[StackPlan], flops: Mapping[str, float] | None) -> Node:
    """The model's modules. `flops`: module name -> forward FLOPs per token, as `flops.count` gives
    them.
    """
    return _Tree(model, flops).whole(plans)


def component(node: Mapping[str, Any], kind: str) -> str:
    """A component as one writes it: its name, and the options that are not as they come."""
    usual = KINDS[kind].defaults(node["name"])
    changed = ((key, value) for key, value in node.items() if usual.get(key) != value)
    return " ".join([node["name"], *(f"{key}={written(value)}" for key, value in changed)])


def ranges(depths: list[int]) -> str:
    """[0, 1, 2, 4] -> "0-2, 4"."""
    runs: list[list[int]] = []
    for depth in depths:
        if runs and depth == runs[-1][1] + 1:
            runs[-1][1] = depth
        else:
            runs.append([depth, depth])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def fold(blocks: list[tuple[list[int], Node]]) -> list[Node]:
    """Equal blocks as one node, in the order of their first; it is named after all layers that call
    one of them.
    """
    alike: dict[Node, list[list[int]]] = {}
    for depths, node in blocks:
        alike.setdefault(node, []).append(depths)
    return [
        node._replace(
            name=ranges(sorted(depth for depths in found for depth in depths)), times=len(found)
        )
        for node, found in alike.items()
    ]


class _Tree:
    """Walks a model once, so that a shared parameter is counted where it comes first."""

    def __init__(self, model: Model, flops: Mapping[str, float] | None):
        self.model = model
        self.flops = flops
        self.seen = set[int]()

    def cost(self, path: str) -> float | None:
        return None if self.flops is None else self.flops.get(path, 0.0)

    def whole(self, plans: list[StackPlan]) -> Node:
        model = self.model
        scale = f" x {model.embed_scale:.4g}, the scale" if model.embed_scale != 1.0 else ""
        children = []
        for name in ("embed", "source_embed", "token_type"):
            if (embed := getattr(model, name)) is not None:
                what = _what(embed) + (scale if name.endswith("embed") else "")
                children.append(self.leaf(name, embed, what))
        children += map(self.stack, plans)
        tied = ["embed transposed"] if model.head.weight is model.embed.weight else []
        what = ", ".join([f"{model.vocab_size} logits", *tied, *_shape(model.head.logit_scaling)])
        children.append(self.leaf("head", model.head, what))
        known = None if self.flops is None else sum(child.flops or 0 for child in children)
        return Node("model", "", parameters.count(model), known, tuple(children))

    def stack(self, plan: StackPlan) -> Node:
        stack: Any = self.model.get_submodule(plan.name)
        self.variants = plan.variants
        self.position = plan.base.nodes["position"]  # that most blocks share; others are shown
        norm = component(plan.base.nodes["norm"], "norm")
        children = []
        for name, position in stack.position.items():
            kind = POSITIONS.name_of(type(position)) or ""
            shown = "position" if name == "base" else f"position.{name}"
            if name == "base" or kind != "none":
                what = component(self.position, "position") if name == "base" else kind
                leaf = self.leaf(f"{plan.name}.position.{name}", position, what)
                children.append(leaf._replace(name=shown))
        inner = [("embed_norm", stack.embed_norm, norm), ("project", stack.project, "")]
        inner += [(f"extra.{name}", extra, "extra") for name, extra in stack.extra.items()]
        children += self.leaves(plan.name, inner)
        blocks = []
        for at, (_, block) in enumerate(plan.own_blocks):
            depths = [depth for depth, called in enumerate(plan.calls) if called == at]
            blocks.append((depths, self.block(f"{plan.name}.{at}", block, len(depths))))
        children += fold(blocks) + self.leaves(plan.name, [("norm", stack.norm, norm)])
        size = sum(child.parameters * child.times for child in children)
        own = f", {len(blocks)} with weights of their own" if len(blocks) < len(plan.blocks) else ""
        what = f"{len(plan.blocks)} layers{own}"
        return Node(plan.name, what, size, self.cost(plan.name), tuple(children))

    def leaves(self, path: str, modules: list[tuple[str, nn.Module, str]]) -> list[Node]:
        """Those of the modules (name, module, what it is) that have parameters."""
        return [
            self.leaf(f"{path}.{name}", module, what)
            for name, module, what in modules
            if parameters.count(module)
        ]

    def block(self, path: str, plan: BlockPlan, called: int) -> Node:
        """`called`: layers that share it; its FLOPs are those of all of them."""
        block: Any = self.model.get_submodule(path)
        children = []
        for group, (key, placement) in zip(plan.groups, block.placement.items(), strict=True):
            sublayers = [self.sublayer(f"{path}.{sub.name}", sub) for sub in group]
            cost = self.cost(f"{path}.placement.{key}")
            if cost is not None:  # the sublayers run inside the placement
                cost = max(0.0, cost - sum(sub.flops or 0 for sub in sublayers))
            what = component(plan.nodes["placement"], "placement")
            if has_norms(plan.nodes["placement"]):
                what += f", norm {component(group[0].norm, 'norm')}"
            if len(group) > 1:
                what += f", {' and '.join(sub.name for sub in group)} in parallel"
            size = parameters.own(placement, self.seen)
            children += [Node("placement", what, size, cost), *sublayers]
        size = sum(child.parameters for child in children)
        said = [] if plan.variant == "base" else [plan.variant]
        said += [f"called {called} times"] if called > 1 else []
        return Node("", ", ".join(said), size, self.cost(path), tuple(children))

    def sublayer(self, path: str, sub: SublayerPlan) -> Node:
        options = {key: value for key, value in sub.component.items() if key not in CARRIED}
        what = component(options, sub.kind)
        if "heads" in sub.component:
            traits = sub.context.attn
            what += f", {traits.heads} heads of {traits.head_dim}"
            what += f", {traits.kv_heads} of keys" if traits.kv_heads != traits.heads else ""
        what += f", times {sub.multiplier:g}" if sub.multiplier != 1.0 else ""
        node = self.leaf(path, self.model.get_submodule(path), what)
        if sub.kind == "ffn":
            return node
        looks = [Node("mask", component(sub.mask, "mask"), 0, self.cost(""))]
        if sub.position != self.position:
            looks.append(Node("position", component(sub.position, "position"), 0, self.cost("")))
        return node._replace(children=(*looks, *node.children))

    def leaf(self, path: str, module: nn.Module, what: str = "") -> Node:
        """A module with those of its modules that have parameters or FLOPs."""
        children, blocks = list[Node](), list[tuple[list[int], Node]]()
        for name, child in module.named_children():
            at = f"{path}.{name}"
            if isinstance(child, Block) and name.isdigit():  # of an extra
                blocks.append(([int(name)], self.block(at, self.variants[child.variant], 1)))
            elif parameters.count(child) or self.cost(at):
                children.append(self.leaf(at, child))
        children += fold(blocks)
        size = sum(child.parameters * child.times for child in children)
        size += parameters.own(module, self.seen)
        # its modules may be called one by one
        cost = self.cost(path)
        cost = sum(child.flops or 0.0 for child in children) if cost == 0 else cost
        name = path.rpartition(".")[2]
        return Node(name, what or _what(module), size, cost, tuple(children))


def _shape(shape: LogitScaling) -> Iterator[str]:
    """What becomes of the logits."""
    if isinstance(shape.scale, str):
        yield "x a factor of each"
    elif shape.scale != 1.0:
        yield f"x {shape.scale:.4g}"
    if shape.softcap is not None:
        yield f"bounded by {shape.softcap:.4g}"


def _what(module: nn.Module) -> str:
    if isinstance(module, nn.Linear):
        bias = "" if module.bias is None else " + bias"
        return f"{module.in_features} -> {module.out_features}{bias}"
    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings} x {module.embedding_dim}"
    said = module.extra_repr()
    return f"{type(module).__name__}({said})" if said else type(module).__name__
