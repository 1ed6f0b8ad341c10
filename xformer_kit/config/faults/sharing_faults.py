"""Checks of block sharing: whether the layers of a stack can share blocks as the config states."""

from operator import itemgetter

from xformer_kit.config.faults.component_faults import path_of
from xformer_kit.plan import STACKS, AttentionCall, Node, StackPlan, depths, earlier_keys
from xformer_kit.registry import Fault, Faults


def unique_layers_faults(config: Node) -> Faults:
    """Yields the faults of stacks with more unique blocks than layers; if several stacks take the
    number from one option, only that of the shortest stack.
    """
    model, faults = config["model"], dict[str, Fault]()
    for name, layers in sorted(depths(config).items(), key=itemgetter(1)):
        own = (model[name] or {}).get("unique_layers")
        path, unique = ("model", model["unique_layers"]) if own is None else (f"model.{name}", own)
        if unique is not None and unique > layers:
            fault = Fault(
                f"{path}.unique_layers",
                f"must be at most the {name}'s layers",
                got=f"{unique} and {layers}",
                fix="null is all of them.",
            )
            faults.setdefault(fault.path, fault)
    yield from faults.values()


def mixed_variants_faults(stack: StackPlan) -> Faults:
    """Yields the fault of the first two layers that share a block and are of different variants."""
    first_layers = dict[int, int]()  # index of a block -> the first layer that uses it
    for layer, block in enumerate(stack.block_index):
        first = first_layers.setdefault(block, layer)
        one, other = stack.blocks[first].variant, stack.blocks[layer].variant
        if one != other:
            yield Fault(
                f"model.{stack.name}.pattern",
                f"layers {first} and {layer} share a block and must be of one variant",
                got=f"'{one}' and '{other}'",
                fix=(
                    "Try model.sharing=cycle with a pattern as long as model.unique_layers, or"
                    " model.unique_layers=null."
                ),
            )
            return


def earlier_keys_faults(stack: StackPlan) -> Faults:
    """Yields the fault of the first attention that uses keys of an earlier layer, if there are none
    that it can use.
    """
    for call, source in earlier_keys(stack):
        path = f"{path_of(stack.blocks[call.depth], call.sublayer, 'attn')}.keys"
        if source is None:
            yield Fault(
                path,
                f"'earlier': no layer before layer {call.depth} has keys of its own and the same"
                " mask, position and kernel",
                fix="Put one before it, or leave it 'own'.",
            )
            return
        own, others = map(_key_sizes, (call, source))
        if own != others:
            yield Fault(
                path,
                f"'earlier': the keys of layer {source.depth} have other kv_heads, head_dim and"
                " v_head_dim",
                got=f"{own} and {others}",
                fix="Set the same, or leave it 'own'.",
            )
            return


def _key_sizes(call: AttentionCall) -> tuple[int, int, int]:
    traits = call.sublayer.context.attn
    return traits.kv_heads, traits.head_dim, traits.v_head_dim


def unused_sharing_faults(model: Node) -> Faults:
    """Yields the fault of a sharing order in a model whose layers share no block."""
    unique = [model["unique_layers"]]
    unique += [(model[name] or {}).get("unique_layers") for name in STACKS if name in model]
    if model["sharing"] != "sequence" and not any(unique):
        yield Fault(
            "model.sharing",
            "sets which layers share a block, and none do",
            got=f"{model['sharing']!r}",
            fix="Set model.unique_layers, or leave it 'sequence'.",
        )
