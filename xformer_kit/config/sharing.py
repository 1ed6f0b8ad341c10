"""Whether the layers of a stack can share blocks as the config states."""

from operator import itemgetter

from xformer_kit.plan import STACKS, Node, StackPlan, depths
from xformer_kit.registry import Fault, Faults


def too_many(config: Node) -> Faults:
    """Stacks with more blocks than layers; of those that take the number from one place, the
    shortest.
    """
    model, found = config["model"], dict[str, Fault]()
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
            found.setdefault(fault.path, fault)
    yield from found.values()


def mixed(stack: StackPlan) -> Faults:
    """The first two layers of different variants that share a block."""
    firsts = dict[int, int]()
    for depth, at in enumerate(stack.calls):
        first = firsts.setdefault(at, depth)
        one, other = stack.blocks[first].variant, stack.blocks[depth].variant
        if one != other:
            yield Fault(
                f"model.{stack.name}.pattern",
                f"layers {first} and {depth} share a block and must be of one variant",
                got=f"'{one}' and '{other}'",
                fix=(
                    "Try model.sharing=cycle with a pattern as long as model.unique_layers, or"
                    " model.unique_layers=null."
                ),
            )
            return


def unused(model: Node) -> Faults:
    """A way of sharing where nothing is shared."""
    own = [(model[name] or {}).get("unique_layers") for name in STACKS if name in model]
    if model["sharing"] != "sequence" and model["unique_layers"] is None and not any(own):
        yield Fault(
            "model.sharing",
            "sets which layers share a block, and none do",
            got=f"{model['sharing']!r}",
            fix="Set model.unique_layers, or leave it 'sequence'.",
        )
