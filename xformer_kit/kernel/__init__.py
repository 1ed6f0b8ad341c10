"""How are scores computed? Which kernel, and why?"""

from xformer_kit.kernel.base import (
    KERNELS,
    Explanation,
    Kernel,
    against,
    choose,
    refusal,
    untrained,
    visible,
)
from xformer_kit.kernel.chunked import Chunked
from xformer_kit.kernel.flex import Either, Flex
from xformer_kit.kernel.recurrence import Recurrence, segments
from xformer_kit.kernel.reference import Reference, spread
from xformer_kit.kernel.sdpa import SDPA
from xformer_kit.kernel.varlen import Varlen

__all__ = [
    "KERNELS",
    "SDPA",
    "Chunked",
    "Either",
    "Explanation",
    "Flex",
    "Kernel",
    "Recurrence",
    "Reference",
    "Varlen",
    "against",
    "choose",
    "refusal",
    "segments",
    "spread",
    "untrained",
    "visible",
]
