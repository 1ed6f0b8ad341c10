"""Position encodings. A position acts at one or several of four places; see `position/base.py`."""

from xformer_kit.position.absolute import LearnedPosition, Sinusoidal
from xformer_kit.position.base import (
    POSITIONS,
    Position,
    positions_are_slots,
    rotate_nothing,
)
from xformer_kit.position.content import (
    Disentangled,
    Shaw,
    TransformerXL,
    gather_columns,
    token_distances,
)
from xformer_kit.position.relative import T5, Alibi, at_least_fp32
from xformer_kit.position.rotary import Rotary, RotaryTables, odd_channel_fault
from xformer_kit.position.scaling import SCALINGS
from xformer_kit.tensors.tokens import scaled_products

__all__ = [
    "POSITIONS",
    "SCALINGS",
    "T5",
    "Alibi",
    "Disentangled",
    "LearnedPosition",
    "Position",
    "Rotary",
    "RotaryTables",
    "Shaw",
    "Sinusoidal",
    "TransformerXL",
    "at_least_fp32",
    "gather_columns",
    "odd_channel_fault",
    "positions_are_slots",
    "rotate_nothing",
    "scaled_products",
    "token_distances",
]
