"""A composition as the function that it computes: every layer with all of its options, and sizes
in place of null. Two configs with equal ones compute the same from equal weights.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.attention import MultiHead
from xformer_kit.model.block import Block
from xformer_kit.model.model import Model
from xformer_kit.plan import KINDS, StackPlan, SublayerPlan, model_plan
from xformer_kit.registry import Node, Registry

# Options of the model that change nothing in evaluation, or that the layers already show.
NOT_COMPARED = {
    *("layers", "unique_layers", "sharing", "train_loops", "encoder", "decoder"),
    *("dropout", "vocab_size", "vocab_multiple", "seed", "freeze", "unfreeze_at"),
    "checkpoint_activations",
    *("parametrization", "base_dim"),
}
LATENT = ("head_dim", "rope_head_dim", "kv_rank")
HEADS = ("heads", "kv_heads", "head_dim", "v_head_dim")
OF_SCORES = ("mask", "position")
# Options, by the last name of their path, of losses and of noise in training.
OF_TRAINING = {"dropout", "balance", "z_loss"}


def architecture(config: Node, model: Model) -> dict[str, Any]:
    """Returns {path: value} of a composition. model: of the config, also on the meta device."""
    plan = model_plan(config)
    found = {f"model.{key}": v for key, v in plan.options.items() if key not in NOT_COMPARED}
    found |= {"model.embed_dim": plan.output.embed_dim, "model.max_len": plan.output.max_len}
    found["extra"] = dict(plan.extras)
    for stack in plan.stacks:
        found |= _stack(stack, model)
    return found


def values_of(config: Node, model: Model) -> dict[str, Any]:
    """Returns {config path: value} of a composed config with sizes in place of null, those of the
    shared components and of each variant: attn.kv_heads,
    model.decoder.variants.local.position.theta. Nodes have their values too. The shared components
    of two stacks have those of the decoder; those of each are model.encoder.ffn.width, ... as well.
    """
    plan = model_plan(config)
    shared = {kind: _filled(registry, config[kind]) for kind, registry in KINDS.items()}
    found = dict(_flat({**shared, "model": plan.options, "extra": config["extra"]}, ""))
    found |= {
        "model.vocab_size": model.vocab_size,
        "model.source_vocab_size": model.source_vocab_size,
        "model.max_len": plan.output.max_len,
        "model.embed_dim": plan.output.embed_dim,
    }
    for stack in plan.stacks:
        blocks: dict[str, Block] = {}
        for index, (_, block) in enumerate(stack.own_blocks):
            blocks.setdefault(block.variant, getattr(model, stack.name).blocks[index])
        for name, block in stack.variants.items():
            own = f"model.{stack.name}."
            places = ["", own] if name == "base" else [f"{own}variants.{name}."]
            for sub in block.sublayers if name == "base" or name in blocks else ():
                if sub.name in ("attn", "ffn"):
                    whole = _complete(sub, _with_component(sub, name, stack, blocks))
                    nodes: dict[str, Any] = {sub.kind: whole}
                    nodes |= {kind: _filled(KINDS[kind], getattr(sub, kind)) for kind in OF_SCORES}
                    found |= {key: v for at in places for key, v in _flat(nodes, at)}
        found[f"model.{stack.name}.layers"] = len(stack.blocks)
        found[f"model.{stack.name}.order"] = [block.variant for block in stack.blocks]
    return found


def _filled(registry: Registry, node: Any) -> dict[str, Any]:
    """Returns a node with the defaults of all options that it does not set, also of the components
    inside it.
    """
    node = registry.complete(node)
    for path, inner, inner_node in registry.nested(node):
        if path in node:
            node[path] = _filled(inner, inner_node)
    return node


def _flat(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields (path, value) of all values in nested mappings, and of the mappings themselves."""
    for key, value in node.items():
        yield f"{path}{key}", value
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")


def _stack(plan: StackPlan, model: Model) -> dict[str, Any]:
    """The layers of a stack."""
    found: dict[str, Any] = {
        f"{plan.name}.layers": len(plan.blocks),
        f"{plan.name}.block_index": plan.block_index,
        f"{plan.name}.embed_norm": plan.embed_norm,
        f"{plan.name}.final_norm": plan.final_norm,
    }
    blocks = getattr(model, plan.name).blocks
    for depth, block in enumerate(plan.blocks):
        at = f"{plan.name}.{depth}"
        found[f"{at}.layout"] = [[sub.name for sub in group] for group in block.groups]
        found[f"{at}.placement"] = _filled(KINDS["placement"], block.nodes["placement"])
        for sub in block.sublayers:
            nodes: dict[str, Any] = {
                sub.kind: _complete(sub, blocks[plan.block_index[depth]]),
                "norm": _filled(KINDS["norm"], sub.norm),
                "multiplier": sub.multiplier * plan.multiplier,
            }
            if sub.kind == "attn":
                nodes |= {kind: _filled(KINDS[kind], getattr(sub, kind)) for kind in OF_SCORES}
            found |= {f"{at}.{sub.name}.{p}": v for p, v in _flat(nodes, "") if not _dropped(p, v)}
    return found


def _dropped(path: str, value: Any) -> bool:
    """Whether a value is a mapping, whose values are listed, or matters only in training."""
    return isinstance(value, Mapping) or path.rpartition(".")[2] in OF_TRAINING


def _with_component(
    sub: SublayerPlan, name: str, stack: StackPlan, blocks: Mapping[str, Block]
) -> Block | None:
    """A block with the component of a sublayer: of the variant, or of another one that has the same
    component, if no layer is of this variant.
    """
    others = (
        block
        for other, block in blocks.items()
        for one in stack.variants[other].sublayers
        if one.name == sub.name and one.component == sub.component
    )
    return blocks.get(name) or next(others, None)


def _complete(sub: SublayerPlan, block: Block | None) -> dict[str, Any]:
    """The node of a sublayer's component with its sizes, and the scale of an attention. block: one
    with it, if any has.
    """
    node = _filled(KINDS[sub.kind], sub.component)
    module: Any = block and getattr(block, sub.name)
    if sub.kind == "attn":
        traits: Any = sub.context.attn
        node |= {key: getattr(traits, key) for key in HEADS if key in node}
        if traits.head_dim_option != "head_dim" and module is not None:  # of latent attention
            node |= {key: getattr(module, key) for key in LATENT if key in node}
        if node.get("norm_eps", 0) is None:  # that of the block's norms
            node["norm_eps"] = _filled(KINDS["norm"], sub.norm).get("eps")
        scale = node.get("scale") or (module.factor if isinstance(module, MultiHead) else None)
        return node | ({"scale": scale} if "scale" in node else {})
    if module is None:
        return node
    width = getattr(module, "width", None) or getattr(module.experts, "width", None)
    return node | ({"width": width, "expand": None, "multiple_of": None} if width else {})
