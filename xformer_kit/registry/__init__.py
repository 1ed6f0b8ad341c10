"""The registry of components, the options of each, and the faults of a config."""

from xformer_kit.registry.component_mapping import complete_mapping, mapping_faults
from xformer_kit.registry.context import Context
from xformer_kit.registry.entries import Option
from xformer_kit.registry.fault import (
    ConfigError,
    Fault,
    Faults,
    Unused,
    config_error,
    format_value,
)
from xformer_kit.registry.messages import (
    Options,
    UnknownValueError,
    above,
    alternatives,
    at_least,
    at_most,
    did_you_mean,
    divisors,
    in_open_range,
    in_range,
    independent_check,
    nearest_values,
    not_empty,
    suggestion,
)
from xformer_kit.registry.node import Node
from xformer_kit.registry.option_types import (
    REQUIRED,
    mismatch,
    nested,
    to_plain,
    type_name,
    whole_number,
)
from xformer_kit.registry.other_options import other_argument, other_option, unknown_option
from xformer_kit.registry.own_names import contradictions, named_node, with_own_names
from xformer_kit.registry.registry import Registry, registry_version
from xformer_kit.registry.signature import OptionGroup
from xformer_kit.registry.traits import AttentionTraits, NormTraits

__all__ = [
    "REQUIRED",
    "AttentionTraits",
    "ConfigError",
    "Context",
    "Fault",
    "Faults",
    "Node",
    "NormTraits",
    "Option",
    "OptionGroup",
    "Options",
    "Registry",
    "UnknownValueError",
    "Unused",
    "above",
    "alternatives",
    "at_least",
    "at_most",
    "complete_mapping",
    "config_error",
    "contradictions",
    "did_you_mean",
    "divisors",
    "format_value",
    "in_open_range",
    "in_range",
    "independent_check",
    "mapping_faults",
    "mismatch",
    "named_node",
    "nearest_values",
    "nested",
    "not_empty",
    "other_argument",
    "other_option",
    "registry_version",
    "suggestion",
    "to_plain",
    "type_name",
    "unknown_option",
    "whole_number",
    "with_own_names",
]
