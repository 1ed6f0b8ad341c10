"""BART (Lewis et al., 2020, arXiv:1910.13461)."""

from xformer_kit.hub.common import sizes, unread
from xformer_kit.hub.family import Family
from xformer_kit.hub.stacks import (
    LOGITS_BIAS,
    OLD_KEYS,
    SHARED,
    SHARED_COPIES,
    TABLES,
    UNUSED,
    bart_blocks,
    bart_keys,
    of_stacks,
)

FAMILY = Family(
    preset="bart",
    architectures=("BartForConditionalGeneration", "BartModel"),
    keys=(sizes()[0], *bart_keys(), unread(*OLD_KEYS)),
    weights=(
        *(SHARED, LOGITS_BIAS, *TABLES),
        *of_stacks("layernorm_embedding", "embed_norm"),
        *bart_blocks("norm"),
    ),
    unused=UNUSED,
    tied=SHARED_COPIES,
    zero=("final_logits_bias",),
)
