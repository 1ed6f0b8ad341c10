"""A family of published models: one `model_type` of the library transformers.

A family is a file in `families/`, named after the model_type, with a `FAMILY`: the preset that it
is composed from, which key of a config.json is which option, and which tensor is which of ours.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import xformer_kit.hub.families
from xformer_kit.hub.keys import Entry
from xformer_kit.hub.weights import Weight
from xformer_kit.registry import config_error

# Files that cannot have the name of their model_type.
FILES = {"deberta-v2": "deberta_v2", "xlm-roberta": "xlm_roberta"}
# Keys of a config.json that do not change the function that the model computes: what others
# do with it, how it is trained, and the numbers of special tokens.
IGNORED = frozenset(Path(__file__).with_name("ignored_keys.txt").read_text("utf-8").split())


@dataclass(frozen=True)
class Family:
    """What is known about the models of one model_type.

    preset: of conf/preset. architectures: names of the classes in transformers whose weights have
    these names; the first is written. keys, weights: the two tables. prefix: of the names of the
    body's tensors, which some files lack. unused: patterns of tensors that follow from the config.
    tied: (a tensor, one that it equals), which a file may repeat. renamed: (part of a name, what it
    was in old files). zero: patterns of tensors that a file may lack, and that are then 0.
    computed: returns tensors of its files that follow from a config.json.
    """

    preset: str
    architectures: tuple[str, ...]
    keys: tuple[Entry, ...]
    weights: tuple[Weight, ...]
    prefix: str = "model."
    unused: tuple[str, ...] = ("*.rotary_emb.inv_freq",)
    tied: tuple[tuple[str, str], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    zero: tuple[str, ...] = ()
    computed: Callable[[Mapping[str, Any]], dict[str, Tensor]] = lambda config: {}


def model_types() -> list[str]:
    """Returns the known model_types."""
    names = {file: name for name, file in FILES.items()}
    found = (module.name for module in pkgutil.iter_modules(xformer_kit.hub.families.__path__))
    return sorted(names.get(name, name) for name in found)


def family_of(config: Mapping[str, Any]) -> Family:
    """Returns the family of a config.json. Raises ConfigError for one that is not known."""
    name, known = config.get("model_type"), model_types()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, 3)
        fix = f"Similar: {', '.join(near)}. " if near else ""
        fix += "docs/guide/published_models.md lists all, and how to write one."
        raise config_error("model_type", "is of no family that is known here", f"{name}", fix)
    return of_type(str(name))


def of_type(model_type: str) -> Family:
    """Returns the family of a known model_type."""
    file = FILES.get(model_type, model_type)
    return importlib.import_module(f"{xformer_kit.hub.families.__name__}.{file}").FAMILY
