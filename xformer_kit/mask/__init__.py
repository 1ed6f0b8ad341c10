"""Who may look at whom?"""

from xformer_kit.mask.algebra import AllOf, AnyOf, Not, PerHead
from xformer_kit.mask.band import Causal, Full, Prefix, SlidingWindow
from xformer_kit.mask.base import INF, MASKS, Band, Mask, matrix
from xformer_kit.mask.sparse import (
    Chunked,
    Dilated,
    Fixed,
    GlobalTokens,
    RandomBlocks,
    RandomKeys,
    Strided,
)

__all__ = [
    "INF",
    "MASKS",
    "AllOf",
    "AnyOf",
    "Band",
    "Causal",
    "Chunked",
    "Dilated",
    "Fixed",
    "Full",
    "GlobalTokens",
    "Mask",
    "Not",
    "PerHead",
    "Prefix",
    "RandomBlocks",
    "RandomKeys",
    "SlidingWindow",
    "Strided",
    "matrix",
]
