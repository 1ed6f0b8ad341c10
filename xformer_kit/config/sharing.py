"""Can the layers of a stack share blocks as the config says?"""

from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.plan import STACKS, depths, stack_plan


def faults(config: Mapping[str, Any], name: str) -> Iterator[str]:
    """More blocks than layers, and layers of two variants that share one."""
    model, layers = config["model"], depths(config)[name]
    own = (model[name] or {}).get("unique_layers")
    where, unique = ("model", model["unique_layers"]) if own is None else (f"model.{name}", own)
    if unique is not None and unique > layers:
        yield (
            f"{where}.unique_layers: must be at most the {name}'s layers; got {unique} and"
            f" {layers}. null is all of them."
        )
        return
    plan, firsts = stack_plan(config, name), dict[int, int]()
    for depth, at in enumerate(plan.calls):
        first = firsts.setdefault(at, depth)
        one, other = plan.blocks[first].variant, plan.blocks[depth].variant
        if one != other:
            yield (
                f"model.{name}.pattern: layers {first} and {depth} share a block and must be of one"
                f" variant; got '{one}' and '{other}'. Try model.sharing=cycle with a pattern as"
                " long as model.unique_layers, or model.unique_layers=null."
            )
            return


def vain(model: Mapping[str, Any]) -> Iterator[str]:
    """A way of sharing where nothing is shared."""
    own = [(model[name] or {}).get("unique_layers") for name in STACKS if name in model]
    if model["sharing"] != "sequence" and model["unique_layers"] is None and not any(own):
        yield (
            "model.sharing: says which layers share a block, and none do; got"
            f" {model['sharing']!r}. Set model.unique_layers, or leave it 'sequence'."
        )
