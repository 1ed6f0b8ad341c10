"""Placements: where norms are on the residual path, and how outputs are added to it.

A placement passes the state of the residual stream, a tuple of tensors, through a group f of
sublayers that run in parallel (one sublayer in a sequential block). The stack calls `start` before
its first block and `finish` after its last.
"""

from xformer_kit.placement import ngpt, norms
from xformer_kit.placement.base import (
    PLACEMENTS,
    MakeNorm,
    Placement,
    State,
    Sublayer,
    SublayerGroup,
    SublayerNorms,
)
from xformer_kit.placement.weighted import ChannelScale
