"""Kernels: implementations of attention and of recurrences, and the choice among them."""

from xformer_kit.kernel.base import (
    KERNELS,
    Kernel,
    KernelExplanation,
    bias,
    cannot_compute,
    cannot_train,
    cannot_train_on,
    choose,
)
from xformer_kit.kernel.chunked import ChunkedRecurrence
from xformer_kit.kernel.fla import FlashLinearAttention
from xformer_kit.kernel.flex import Flex, SDPAOrFlex
from xformer_kit.kernel.recurrence import Recurrence, segments
from xformer_kit.kernel.reference import Reference
from xformer_kit.kernel.sdpa import SDPA
from xformer_kit.kernel.varlen import Varlen
from xformer_kit.tensors.tokens import expand_heads, scaled_products
