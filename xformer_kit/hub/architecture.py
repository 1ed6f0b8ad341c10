"""A composition as the function that it computes: every layer with all of its options, and sizes
in place of null. Two configs with equal ones compute the same from equal weights.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.model.block import Block
from xformer_kit.model.model import Model
from xformer_kit.plan import KINDS, StackPlan, SublayerPlan, model_plan
from xformer_kit.registry import Node

# Options of the model that change nothing in evaluation, or that the layers already show.
NOT_COMPARED = {
    *("layers", "unique_layers", "sharing", "train_loops", "encoder", "decoder"),
    *("dropout", "vocab_size", "vocab_multiple", "seed", "freeze", "unfreeze_at"),
}
LATENT = ("head_dim", "rope_head_dim", "kv_rank")
HEADS = ("heads", "kv_heads", "head_dim", "v_head_dim")


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
    model.decoder.variants.local.position.theta. Nodes have their values too.
    """
    plan = model_plan(config)
    found = dict(_flat({key: config[key] for key in (*KINDS, "model", "extra")}, ""))
    found |= {
        "model.vocab_size": model.vocab_size,
        "model.max_len": plan.output.max_len,
        "model.embed_dim": plan.output.embed_dim,
    }
    for stack in plan.stacks:
        blocks: dict[str, Block] = {}
        for index, (_, block) in enumerate(stack.own_blocks):
            blocks.setdefault(block.variant, getattr(model, stack.name).blocks[index])
        for name, block in stack.variants.items():
            at = "" if name == "base" else f"model.{stack.name}.variants.{name}."
            for sub in block.sublayers if name == "base" or name in blocks else ():
                if sub.name in ("attn", "ffn"):
                    nodes = _complete(sub, blocks.get(name))
                    found |= _flat({sub.kind: nodes}, at)
                    found |= _flat({"mask": sub.mask, "position": sub.position}, at)
                    inner = _inner_options(sub.kind, nodes)
                    found = {f"{at}{sub.kind}.{path}": v for path, v in inner.items()} | found
        found[f"model.{stack.name}.layers"] = len(stack.blocks)
        found[f"model.{stack.name}.order"] = [block.variant for block in stack.blocks]
    return found


def _flat(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields (path, value) of all values in nested mappings, and of the mappings themselves."""
    for key, value in node.items():
        yield f"{path}{key}", value
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")


def _inner_options(kind: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {path: value} of all options of the components inside a node, also of those that it
    leaves out: router.scale.
    """
    return {
        f"{path}.{option}": value
        for path, _, inner in KINDS[kind].nested(node)
        for option, value in inner.items()
        if path in node
    }


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
        found[f"{at}.placement"] = block.nodes["placement"]
        for sub in block.sublayers:
            nodes: dict[str, Any] = {
                sub.kind: _complete(sub, blocks[plan.block_index[depth]]),
                "norm": sub.norm,
                "multiplier": sub.multiplier * plan.multiplier,
            }
            if sub.kind == "attn":
                nodes |= {"mask": sub.mask, "position": sub.position}
            flat = dict(_flat(nodes, ""))
            for kind in nodes.keys() & KINDS.keys():
                inner = _inner_options(kind, nodes[kind])
                flat |= {f"{kind}.{path}": value for path, value in inner.items()}
                for path in inner:  # in place of the name of a component without options
                    flat.pop(f"{kind}.{path.rpartition('.')[0]}", None)
            found |= {f"{at}.{sub.name}.{p}": v for p, v in flat.items() if not _dropped(p, v)}
    return found


def _dropped(path: str, value: Any) -> bool:
    """Whether a value is a mapping, whose values are listed, or a probability of training."""
    return isinstance(value, Mapping) or path.rpartition(".")[2] == "dropout"


def _complete(sub: SublayerPlan, block: Block | None) -> dict[str, Any]:
    """The node of a sublayer's component with its sizes. block: a layer with it, if any has."""
    node = dict(sub.component)
    if sub.kind == "attn":
        traits: Any = sub.context.attn
        sizes = {key: getattr(traits, key) for key in HEADS if key in node}
        if traits.head_dim_option != "head_dim" and block is not None:  # of latent attention
            own = getattr(block, sub.name)
            sizes |= {key: getattr(own, key) for key in LATENT if key in node}
        return node | sizes
    if block is None:
        return node
    module: Any = getattr(block, sub.name)
    width = getattr(module, "width", None) or getattr(module.experts, "width", None)
    return node | ({"width": width, "expand": None, "multiple_of": None} if width else {})
