"""PEGASUS (Zhang et al., 2020, arXiv:1912.08777)."""

from torch import Tensor

from xformer_kit.hub.common import sizes, unread
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Values
from xformer_kit.hub.stacks import (
    LOGITS_BIAS,
    OLD_KEYS,
    SHARED,
    SHARED_COPIES,
    STACKS,
    UNUSED,
    bart_blocks,
    bart_keys,
    of_stacks,
    sinusoids,
)


def tables(config: Values) -> dict[str, Tensor]:
    """The tables of sinusoids, which the files have."""
    table = sinusoids(config["max_position_embeddings"], config["d_model"])
    return {f"model.{stack}.embed_positions.weight": table for stack in STACKS}


FAMILY = Family(
    preset="pegasus",
    architectures=("PegasusForConditionalGeneration", "PegasusModel"),
    keys=(sizes()[0], *bart_keys(), unread(*OLD_KEYS)),
    weights=(
        *(SHARED, LOGITS_BIAS),
        *of_stacks("layer_norm", "norm"),
        *bart_blocks(),
    ),
    unused=(*UNUSED, "model.*.embed_positions.weight"),
    tied=SHARED_COPIES,
    zero=("final_logits_bias",),
    computed=tables,
)
