"""UMT5 (Chung et al., 2023, arXiv:2304.09151): mT5 with a table of distances in each layer. In
transformers 5 logits are divided by the root of dim for every config.json.
"""

from xformer_kit.hub.common import tied, unread
from xformer_kit.hub.families.t5 import (
    BIAS,
    COPIES,
    EMBEDDING_AND_HEAD,
    STACKS,
    UNUSED,
    t5_blocks,
    t5_keys,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.weights import Weight

TABLES = tuple(
    Weight(f"{stack}.block.{{i}}.layer.0.{BIAS}", f"{stack}.position.layer_{{i}}.weight")
    for stack in STACKS
)
FAMILY = Family(
    preset="umt5",
    architectures=("UMT5ForConditionalGeneration",),
    keys=(
        *t5_keys("gated-gelu"),
        tied(True),
        unread("scale_decoder_outputs", "scalable_attention"),
    ),
    weights=(*EMBEDDING_AND_HEAD, *TABLES, *t5_blocks()),
    prefix="",
    unused=UNUSED,
    tied=COPIES,
)
