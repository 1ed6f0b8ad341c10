"""Where on the residual path do norms stand, and what stands in the place of the sum?

A placement carries the state of the residual stream, a tuple of tensors, through a group of
sublayers that run in parallel (one, in a sequential block). The stack calls `start` before its
first block and `finish` behind its last.
"""

from xformer_kit.placement.base import (
    PLACEMENTS,
    MakeNorm,
    Placement,
    State,
    Sublayer,
    SublayerNorms,
    Total,
    normed,
)
from xformer_kit.placement.ngpt import NGPT
from xformer_kit.placement.norms import (
    NoPlacement,
    Output,
    PostNorm,
    PreAndSumNorm,
    PreNorm,
    Sandwich,
)
from xformer_kit.placement.weighted import Channels, DeepNorm, LayerScale

__all__ = [
    "NGPT",
    "PLACEMENTS",
    "Channels",
    "DeepNorm",
    "LayerScale",
    "MakeNorm",
    "NoPlacement",
    "Output",
    "Placement",
    "PostNorm",
    "PreAndSumNorm",
    "PreNorm",
    "Sandwich",
    "State",
    "Sublayer",
    "SublayerNorms",
    "Total",
    "normed",
]
