"""Sizes at which a whole study is repeated, so that a difference can be seen to hold at every one.

study:
  sizes: [{model.dim: 64}, {model.dim: 128}, {model.dim: 256, model.layers: 6}]
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xformer_kit.registry import Fault
from xformer_kit.study.design import DESIGNS, Rung
from xformer_kit.study.factor import Factors
from xformer_kit.study.nodes import Node
from xformer_kit.text.command_lines import override_text


def rungs(node: Node) -> list[Rung]:
    """The rungs of a ladder, or the sizes of a complete node; empty for one size."""
    of_design = list(DESIGNS.create(node["design"]).rungs())
    return of_design or [
        Rung(" ".join(words), words)
        for size in node["sizes"] or ()
        for words in [tuple(f"{key}={override_text(value)}" for key, value in size.items())]
    ]


def faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Sizes that are none, that occur twice, or that the study cannot have."""
    found = node["sizes"]
    if found is None:
        return
    example = "Try study.sizes='[{model.dim: 64}, {model.dim: 128}]'."
    if len(found) < 2 or not all(isinstance(size, Mapping) and size for size in found):
        yield Fault("study.sizes", "must list two sizes or more, each {key: value}", found, example)
    elif len({str(sorted(size.items())) for size in found}) < len(found):
        yield Fault("study.sizes", "must be different", found, example)
    elif any(key == "seed" or str(key).startswith("study.") for size in found for key in size):
        yield Fault("study.sizes", "must set options of the model or of training", found, example)
    elif node["design"]["name"] in ("ladder", "search"):
        rule = f"is not for design={node['design']['name']}"
        yield Fault("study.sizes", rule, found, "Take another design.")
    elif node["command"] is not None:
        rule = "sets options of a config, which a command does not have"
        yield Fault("study.sizes", rule, found, "Make the size a factor.")
    elif node["stop"]:
        rule = "is not for study.stop, which leaves out seeds by the result at one size"
        yield Fault("study.sizes", rule, found, "Set study.stop=null.")
    else:
        yield from conflicts({key for size in found for key in size}, "study.sizes", node, factors)


def conflicts(keys: Iterable[Any], by: str, node: Node, factors: Factors) -> Iterator[Fault]:
    """Factors, tuning and budgets that set a key which the sizes set, too."""
    varied = {
        f"study.factors.{name}": {key for words in factor.levels.values() for key in words}
        for name, factor in factors.items()
    }
    varied |= {f"study.tune.{key}": {key} for key in node["tune"] or {}}
    varied["study.budget.by"] = {node["budget"]["by"]}
    for path, of_path in varied.items():
        for key in (key for key in keys if key in of_path):
            rule = f"sets {key}, as {by} does at every size"
            yield Fault(path, rule, fix="Leave it out of one of them, or take another key.")
