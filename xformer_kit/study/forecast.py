"""Forecasts of a ladder: which of its runs are foretold, and whether a written forecast is intact.

With `study.forecast=true` the runs of the largest size are started last. Before the first of them
the laws of the other sizes are fitted, and what they predict is written with the time and a hash.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from xformer_kit.registry import Fault
from xformer_kit.study.nodes import Node

FILE = "forecast.json"


def faults(node: Node) -> Iterator[Fault]:
    """A forecast of a design without laws."""
    if node["forecast"] and node["design"]["name"] != "ladder":
        rule = "extrapolates a scaling law, which only design=ladder has"
        yield Fault("study.forecast", rule, node["design"]["name"], "Set it to false.")


def foretold(variants: Sequence[Node]) -> list[int]:
    """The indices of the entries of a plan at the size whose largest rung has the most FLOPs."""
    if not variants or not variants[0].get("rung"):
        return []
    base = [one for one in variants if one["label"] == variants[0]["label"]]
    largest = max(base, key=lambda one: one["cost"]["flops"])["rung"]["words"]
    return [i for i, one in enumerate(variants) if one["rung"]["words"] == largest]


def digest(forecast: Any) -> str:
    """sha256 of a forecast without its hash, as JSON with sorted keys."""
    content = {name: value for name, value in forecast.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_intact(forecast: Any) -> bool:
    """Whether a forecast has the hash with which it was written."""
    return bool(digest(forecast) == forecast.get("sha256"))


def run_name(variant: Node) -> str:
    """The name of an entry of the plan in a forecast: variant and rung."""
    return f"{variant['name']} {variant['rung']['name']}"


def is_of(forecast: Any, variants: Sequence[Node]) -> bool:
    """Whether a forecast is of these entries of a plan, not of those of another ladder."""
    names = {run_name(variants[i]) for i in foretold(variants) if not variants[i].get("source")}
    return names == forecast["predictions"].keys()
