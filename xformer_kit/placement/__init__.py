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
from xformer_kit.placement.earlier import Aggregated, DenseFormer, LIMe
from xformer_kit.placement.gated import GRU, GatedStreams
from xformer_kit.placement.norms import Nothing, Output, Post, Pre, PreAndSum, Sandwich
from xformer_kit.placement.orthogonal import Orthogonal
from xformer_kit.placement.reversible import Reversible
from xformer_kit.placement.sphere import Sphere
from xformer_kit.placement.split import MVSplit
from xformer_kit.placement.streams import HyperConnections, ResiDual
from xformer_kit.placement.weighted import Channels, Deep, LayerScale, NormFormer, ReZero

__all__ = [
    "GRU",
    "PLACEMENTS",
    "Aggregated",
    "Channels",
    "Deep",
    "DenseFormer",
    "GatedStreams",
    "HyperConnections",
    "LIMe",
    "LayerScale",
    "MVSplit",
    "MakeNorm",
    "NormFormer",
    "Norms",
    "Nothing",
    "Orthogonal",
    "Output",
    "Placement",
    "Post",
    "Pre",
    "PreAndSum",
    "ReZero",
    "ResiDual",
    "Reversible",
    "Sandwich",
    "Sphere",
    "State",
    "Sublayer",
    "Total",
]
