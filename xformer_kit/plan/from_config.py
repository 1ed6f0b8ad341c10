"""Computes the plan of a config, whose names and types of values must be valid."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torch import nn

from xformer_kit.attention import ATTENTIONS
from xformer_kit.extra import EXTRAS
from xformer_kit.mask import MASKS
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS
from xformer_kit.plan.block_plan import BlockPlan, SublayerPlan, provenance_of
from xformer_kit.plan.cross_layer import with_exchanged_tensors
from xformer_kit.plan.differences import (
    KINDS,
    STACKS,
    Node,
    SublayerNodes,
    base_nodes,
    layout_of,
    merge_differences,
    sublayers,
)
from xformer_kit.plan.layers import layer_order, loop_range, shared_by
from xformer_kit.plan.model_plan import ModelPlan, StackPlan
from xformer_kit.plan.parametrization import with_attention_multiplier, with_output_multiplier
from xformer_kit.position import POSITIONS
from xformer_kit.registry import Context, NormTraits, registry_version


def model_plan(config: Node) -> ModelPlan:
    """The plan of a model. It is computed once per config, until a component is registered."""
    read = {key: config[key] for key in (*KINDS, "model", "extra", "init", "seed") if key in config}
    read["data"] = {"seq_len": (config.get("data") or {}).get("seq_len")}
    read["trainer"] = {"precision": _precision(config)}
    return _kept_plan(json.dumps(read), registry_version())


@lru_cache(maxsize=8)
def _kept_plan(config: str, version: int) -> ModelPlan:
    return new_plan(json.loads(config))  # of a copy: a caller may change its config


def new_plan(config: Node) -> ModelPlan:
    """The plan of a model, which is not kept."""
    model = config["model"]
    stacks = tuple(stack_plan(config, name) for name in stack_names(config))
    seed = config["seed"] if model.get("seed") is None else model["seed"]
    options = with_output_multiplier(model)
    return ModelPlan(options, stacks, config["init"], seed, config.get("extra") or {})


def stack_names(config: Node) -> list[str]:
    """The stacks of a model, the encoder first."""
    return [name for name in STACKS if name in config["model"]]


def stacks(config: Node) -> list[StackPlan]:
    """The plans of a model's stacks."""
    return list(model_plan(config).stacks)


def stack_plan(config: Node, name: str) -> StackPlan:
    """The plan of one stack, encoder or decoder, layer by layer."""
    model = config["model"]
    stack = model[name] or {}
    layers = stack.get("layers") or model["layers"]
    order = layer_order(stack, layers)
    unique = stack.get("unique_layers") or model["unique_layers"] or layers
    loops = model["loops"]
    block_index = shared_by(layers, unique, model["sharing"]) * loops
    order, layers = order * loops, layers * loops
    variants = {
        variant: _block(config, name, variant, layers, len(set(block_index)))
        for variant in dict.fromkeys(["base", *order])
    }
    base = variants["base"].nodes
    final = model.get("final_norm")
    if final is None:
        final = PLACEMENTS[base["placement"]["name"]].final_norm
    plan = StackPlan(
        name=name,
        dim=model["dim"],
        embed_dim=model["embed_dim"] or model["dim"],
        map_first=model["embed_map_first"],
        max_len=max_len(config),
        blocks=tuple(variants[variant] for variant in order),
        variants=variants,
        block_index=block_index,
        embed_norm=base["norm"] if model["embed_norm"] else None,
        final_norm=base["norm"] if final else None,
        dropout=model["dropout"],
        multiplier=model["residual_multiplier"],
        loops=loops,
        train_loops=loop_range(model["train_loops"], loops),
    )
    return _with_broken_laws(with_exchanged_tensors(plan), config.get("extra") or {})


def _block(config: Node, stack_name: str, variant: str, layers: int, blocks: int) -> BlockPlan:
    """The block of a variant, its name or "base". layers, blocks: numbers of the stack's."""
    model, path = config["model"], f"model.{stack_name}"
    stack = model[stack_name] or {}
    shared, provenance = merge_differences(base_nodes(config), stack, path, {})
    differences: Mapping[str, Any] = {}
    if variant != "base":
        differences = (stack.get("variants") or {})[variant] or {}
        path = f"{path}.variants.{variant}"
    nodes, provenance = merge_differences(shared, differences, path, provenance)
    cross = [node["cross"] for node in (stack, differences) if node.get("cross")]
    has_source = stack_name == "decoder" and "encoder" in model
    layout = sublayers(layout_of(stack, differences, has_source), nodes, cross)
    block = BlockPlan(variant, path, nodes, (), provenance)
    context = Context(
        path=path,
        stack=stack_name,
        dim=model["dim"],
        layers=layers,
        max_len=max_len(config),
        seq_len=(config.get("data") or {}).get("seq_len"),
        has_source=has_source,
        mask_path=_mask_path(model, stack_name, block),
        blocks=blocks,
        precision=_precision(config),
    )
    groups = []
    for group in layout:
        group_context = context.changed(parallel=tuple(sub.kind for sub in group))
        contexts = [_sublayer_context(group_context, sub, block) for sub in group]
        pairs = zip(group, contexts, strict=True)
        groups.append(tuple(_sublayer_plan(model, sub, own) for sub, own in pairs))
    return replace(block, groups=tuple(groups))


def _sublayer_plan(model: Node, sub: SublayerNodes, context: Context) -> SublayerPlan:
    fields = vars(sub)
    if sub.kind == "attn":
        component = with_attention_multiplier(model, sub.component, context)
        fields = {**fields, "component": component}
    return SublayerPlan(**fields, context=context)


def _sublayer_context(context: Context, sub: SublayerNodes, block: BlockPlan) -> Context:
    """A block's context with the nodes, kind -> complete node, and the traits of one sublayer."""
    own = {"mask": sub.mask, "position": sub.position, "norm": sub.norm, sub.kind: sub.component}
    nodes = dict(block.nodes) | own
    attn, norm = ATTENTIONS.with_inner(nodes["attn"]), nodes["norm"]
    return context.changed(
        path=f"{context.path}.cross" if sub.cross else context.path,
        names={kind: node["name"] for kind, node in nodes.items()},
        options=nodes,
        attn=ATTENTIONS[attn["name"]].traits(attn, context.dim),
        mask=MASKS.create(nodes["mask"]).traits(),
        position=POSITIONS[nodes["position"]["name"]].traits(),
        norm=_norm_traits(norm),
        cross=sub.cross,
        fusible=getattr(KINDS[sub.kind][sub.component["name"]], "fusible", ()),
    )


def _norm_traits(node: Node) -> NormTraits:
    component = NORMS[node["name"]]
    is_identity = isinstance(component, type) and issubclass(component, nn.Identity)
    return NormTraits(not is_identity, {key: node[key] for key in node if key != "name"})


def _mask_path(model: Node, stack: str, block: BlockPlan) -> str:
    """The config path at which only these layers get another mask."""
    path = provenance_of("mask", block)
    both = all(name in model for name in STACKS)
    return f"model.{stack}.mask" if path == "mask" and both else path


def _precision(config: Node) -> str:
    return (config.get("trainer") or {}).get("precision", "auto")


def max_len(config: Node) -> int:
    """The longest sequence that the model is built for, in tokens."""
    return config["model"].get("max_len") or (config.get("data") or {}).get("seq_len") or 1024


def depths(config: Node) -> dict[str, int]:
    """Stack -> its number of layers."""
    model = config["model"]
    return {
        name: (model[name] or {}).get("layers") or model["layers"] for name in stack_names(config)
    }


def _with_broken_laws(plan: StackPlan, extras: Node) -> StackPlan:
    """Returns the plan with its fields `breaks` and `cross_breaks`: each law that a component
    breaks, such as documents or padding, and which component breaks it and why.
    """
    of_extras = {
        law: f"extra '{name}' breaks the law of {law} ({reason})"
        for name, options in extras.items()
        for law, reason in EXTRAS.broken_laws({"name": name, **options}).items()
    }
    breaks, cross = _broken(plan), _broken(plan, cross=True)
    return replace(plan, breaks=breaks | of_extras, cross_breaks=cross)


def _broken(plan: StackPlan, cross: bool = False) -> dict[str, str]:
    """Law -> the component that breaks it and why; with `cross` only of cross attentions."""
    blocks = list({id(block): block for block in plan.blocks}.values())
    nodes = [] if cross else [(kind, block.nodes[kind]) for block in blocks for kind in KINDS]
    for sub in (sub for block in blocks for sub in block.sublayers if sub.cross or not cross):
        nodes += [(sub.kind, sub.component), ("mask", sub.mask), ("position", sub.position)]
    return {
        law: f"{kind} '{node['name']}' breaks the law of {law} ({reason})"
        for kind, node in sorted(nodes, key=lambda pair: (pair[0], pair[1]["name"]))
        for law, reason in KINDS[kind].broken_laws(node).items()
    }
