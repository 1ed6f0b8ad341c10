"""Norms: `norm(dim) -> Module` over the last axis."""

from xformer_kit.norm.norms import (
    NORMS,
    RMS,
    NormTraits,
    _RMSNorm,
)

__all__ = [
    "NORMS",
    "RMS",
    "NormTraits",
    "_RMSNorm",
]
