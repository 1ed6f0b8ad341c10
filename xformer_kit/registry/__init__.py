"""The registry of components, the options of each, and the faults of a config."""

from xformer_kit.registry.context import Context
from xformer_kit.registry.entries import Broken, Option
from xformer_kit.registry.fault import ConfigError, Fault, Faults, Unused, config_error, shown
from xformer_kit.registry.many import complete_many, faults_of_many
from xformer_kit.registry.messages import (
    Options,
    UnknownValueError,
    above,
    apart,
    article,
    at_least,
    at_most,
    choices,
    divisors,
    listed,
    near,
    nearest,
    unknown_option,
    within,
)
from xformer_kit.registry.node import Node
from xformer_kit.registry.option_types import NESTED, REQUIRED, mismatch, nested, plain, type_name
from xformer_kit.registry.registry import Registry, registered
from xformer_kit.registry.signature import OptionGroup
from xformer_kit.registry.traits import AttentionTraits, MaskTraits, NormTraits, PositionTraits

__all__ = [
    "NESTED",
    "REQUIRED",
    "AttentionTraits",
    "Broken",
    "ConfigError",
    "Context",
    "Fault",
    "Faults",
    "MaskTraits",
    "Node",
    "NormTraits",
    "Option",
    "OptionGroup",
    "Options",
    "PositionTraits",
    "Registry",
    "UnknownValueError",
    "Unused",
    "above",
    "apart",
    "article",
    "at_least",
    "at_most",
    "choices",
    "complete_many",
    "config_error",
    "divisors",
    "faults_of_many",
    "listed",
    "mismatch",
    "near",
    "nearest",
    "nested",
    "plain",
    "registered",
    "shown",
    "type_name",
    "unknown_option",
    "within",
]
