"""How are scores computed? Which kernel, and why?"""

from xformer_kit.kernel.base import KERNELS, Kernel, against, choose, refusal, untrained, visible
from xformer_kit.kernel.chunked import Chunked
from xformer_kit.kernel.flex import Either, Flex
from xformer_kit.kernel.reference import Reference
from xformer_kit.kernel.sdpa import SDPA
from xformer_kit.kernel.varlen import Varlen

__all__ = [
    "KERNELS",
    "SDPA",
    "Chunked",
    "Either",
    "Flex",
    "Kernel",
    "Reference",
    "Varlen",
    "against",
    "choose",
    "refusal",
    "untrained",
    "visible",
]
