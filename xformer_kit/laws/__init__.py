"""Laws that every component must keep: functions of a composed config that raise LawBroken.

from xformer_kit.laws import LAWS, tiny_config
LAWS["causality"](tiny_config(mask="sliding_window", position="alibi"))
"""

from xformer_kit.laws import (
    building,
    decoding_cost,
    derivatives,
    device,
    generation,
    graph,
    masks,
    numerics,
    parameters,
    sequence,
    source,
    training,
)
from xformer_kit.laws.checking import Check, Result, check_component, check_file
from xformer_kit.laws.registry import LAWS, explanation
from xformer_kit.laws.tiny_composition import LawBroken, faults, overrides, tiny_config, tiny_node

__all__ = [
    "LAWS",
    "Check",
    "LawBroken",
    "Result",
    "check_component",
    "check_file",
    "explanation",
    "faults",
    "overrides",
    "tiny_config",
    "tiny_node",
]
