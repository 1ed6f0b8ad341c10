"""Values that all kinds of component share: what a parameter is."""

from xformer_kit.tensors.parameters import (
    ParameterInfo,
    Statement,
    Within,
    canonical,
    embedding,
    hidden,
    owned_parameters,
    parameter_table,
    vector,
)

__all__ = [
    "ParameterInfo",
    "Statement",
    "Within",
    "canonical",
    "embedding",
    "hidden",
    "owned_parameters",
    "parameter_table",
    "vector",
]
