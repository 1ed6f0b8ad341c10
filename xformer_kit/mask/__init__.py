"""Attention masks: predicates on a query token and a key token."""

from xformer_kit.mask.algebra import AllOf, AnyOf, Not, PerHead
from xformer_kit.mask.band import Causal, Full, Prefix, SlidingWindow
from xformer_kit.mask.base import INF, MASKS, Band, Mask, matrix
from xformer_kit.mask.sparse import ChunkedMask, GlobalTokens, Sparse

__all__ = [
    "INF",
    "MASKS",
    "AllOf",
    "AnyOf",
    "Band",
    "Causal",
    "ChunkedMask",
    "Full",
    "GlobalTokens",
    "Mask",
    "Not",
    "PerHead",
    "Prefix",
    "SlidingWindow",
    "Sparse",
    "matrix",
]
