"""M2M-100 (Fan et al., 2020, arXiv:2010.11125), and NLLB's dense models (NLLB Team, 2022,
arXiv:2207.04672).
"""

from xformer_kit.hub.common import sizes, unread
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.stacks import (
    OLD_KEYS,
    SHARED,
    SHARED_COPIES,
    UNUSED,
    bart_blocks,
    bart_keys,
    of_stacks,
)

PADDING = Key(
    "pad_token_id",
    "position.offset",
    1,
    to_ours=lambda token: token + 1,
    to_theirs=lambda offset: offset - 1,
)
FAMILY = Family(
    preset="m2m_100",
    architectures=("M2M100ForConditionalGeneration", "M2M100Model"),
    keys=(sizes()[0], *bart_keys("relu", True), PADDING, unread(*OLD_KEYS)),
    weights=(SHARED, *of_stacks("layer_norm", "norm"), *bart_blocks()),
    unused=(*UNUSED, "model.*.embed_positions.weights", "model.*.embed_positions._float_tensor"),
    tied=SHARED_COPIES,
)
