"""Position encodings. A position acts at one or several of four places; see `position/base.py`."""

from xformer_kit.position import absolute, content, relative
from xformer_kit.position.base import (
    POSITIONS,
    Position,
    positions_are_slots,
    rotate_nothing,
)
from xformer_kit.position.content import (
    gather_columns,
    token_distances,
)
from xformer_kit.position.rotary import Rotary, RotaryTables, odd_channel_fault
from xformer_kit.position.scaling import SCALINGS, Scaling
from xformer_kit.tensors.precision import at_least_fp32
from xformer_kit.tensors.tokens import scaled_products
