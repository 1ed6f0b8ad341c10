"""Norms: `norm(dim) -> Module` over the last axis."""

from xformer_kit.norm.norms import (
    NORMS,
    RMS,
    Squash,
    _RMSNorm,
    to_length,
)

__all__ = [
    "NORMS",
    "RMS",
    "Squash",
    "_RMSNorm",
    "to_length",
]
