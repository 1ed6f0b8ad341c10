"""mT5 (Xue et al., 2021, arXiv:2010.11934): T5 v1.1 of many languages."""

from xformer_kit.hub.common import tied
from xformer_kit.hub.families.t5 import (
    COPIES,
    EMBEDDING_AND_HEAD,
    ONE_TABLE,
    UNUSED,
    t5_blocks,
    t5_keys,
)
from xformer_kit.hub.family import Family

FAMILY = Family(
    preset="mt5",
    architectures=("MT5ForConditionalGeneration",),
    keys=(*t5_keys("gated-gelu"), tied(True)),
    weights=(*EMBEDDING_AND_HEAD, *ONE_TABLE, *t5_blocks()),
    prefix="",
    unused=UNUSED,
    tied=COPIES,
)
