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
)
from xformer_kit.placement.ngpt import NGPT
from xformer_kit.placement.norms import Nothing, Output, Post, Pre, PreAndSum, Sandwich
from xformer_kit.placement.weighted import Channels, DeepNorm, LayerScale

__all__ = [
    "NGPT",
    "PLACEMENTS",
    "Channels",
    "DeepNorm",
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
    "State",
    "Sublayer",
    "Total",
]
