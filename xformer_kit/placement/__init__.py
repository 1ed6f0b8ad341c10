"""Where on the residual path do norms stand, and what stands in the place of the sum?

A placement carries the state of the residual stream, a tuple of tensors, through a group of
sublayers that run in parallel (one, in a sequential block). The stack calls `start` before its
first block and `finish` behind its last.
"""

from xformer_kit.placement.base import (
    PLACEMENTS,
    MakeNorm,
    Norms,
    Placement,
    State,
    Sublayer,
    Total,
    normed,
)
from xformer_kit.placement.norms import Nothing, Output, Post, Pre, PreAndSum, Sandwich
from xformer_kit.placement.sphere import Sphere
from xformer_kit.placement.weighted import Channels, Deep, LayerScale

__all__ = [
    "PLACEMENTS",
    "Channels",
    "Deep",
    "LayerScale",
    "MakeNorm",
    "Norms",
    "Nothing",
    "Output",
    "Placement",
    "Post",
    "Pre",
    "PreAndSum",
    "Sandwich",
    "Sphere",
    "State",
    "Sublayer",
    "Total",
    "normed",
]
