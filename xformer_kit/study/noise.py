"""The noise of one run: how far runs of one composition differ that differ only in a seed.

With `study.noise_floor=true` the baseline is trained again at the other seeds of the study with one
source of random numbers varied, and the others as at the study's first seed. The runs of the study
vary all sources at once.

The noise is the standard deviation of one run; two runs differ by sqrt(2) times as much.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from xformer_kit.registry import Fault
from xformer_kit.study.nodes import Config, Node

SOURCES = {"weights": "initial weights", "order": "order of the data", "dropout": "dropout"}
KEYS = {"weights": "model.seed", "order": "data.seed"}  # each is `seed` if it is null


def sources(node: Node) -> tuple[str, ...]:
    """The sources that a complete node of a study varies one at a time."""
    chosen = node["noise_floor"]
    return tuple(SOURCES) if chosen is True else tuple(chosen or ())


def seed_values(source: str, first: int, seed: int) -> dict[str, int]:
    """Config key -> the seed of a run in which only this source differs from that of seed
    `first`; all do if it is empty.
    """
    if not source:
        return {"seed": seed}
    if source in KEYS:
        return {"seed": first, KEYS[source]: seed}
    # Dropout, and what else is drawn during training.
    return {"seed": seed} | dict.fromkeys(KEYS.values(), first)


def faults(node: Node) -> Iterator[Fault]:
    """Settings of a complete node that its noise floor contradicts."""
    chosen, why = node["noise_floor"], ""
    if chosen is False:
        return
    if chosen is not True and len({*chosen}) != (len(chosen) or -1):
        why = "must be true, or a list of different names"
    elif node["command"] is not None:
        why = "varies seeds that a command does not have; the noise of all is in every report"
    elif node["tune"]:
        why = "is of one baseline, and study.tune has several"
    elif node["design"]["name"] == "search":
        why = "is of a study with fixed variants, and a search proposes them"
    elif node["seeds"] == 1 or (isinstance(node["seeds"], list) and len(node["seeds"]) == 1):
        why = "needs two seeds or more"
    if why:
        yield Fault("study.noise_floor", why, node["noise_floor"], "Set it to false.")


def config_faults(node: Node, config: Config) -> Iterator[Fault]:
    """The fault of a seed that is set, and that the noise floor varies."""
    for key in KEYS.values() if sources(node) else ():
        group, _, name = key.partition(".")
        if (value := config[group].get(name)) is not None:
            rule = "is varied by study.noise_floor, so it must be null"
            yield Fault(key, rule, value, "Set it to null, or study.noise_floor=false.")


def variant_of(baseline: Any, source: str) -> Any:
    """The entry of the plan whose runs vary one source."""
    name = f"{baseline.name}, only {SOURCES[source]}"
    return replace(baseline, label=f"noise of {source}", name=name, source=source)
