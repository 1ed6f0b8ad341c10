"""The two patterns of the Sparse Transformer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from xformer_kit.mask import Sparse
from xformer_kit.registry import at_least


@dataclass(frozen=True)
class Factorized(Sparse):
    """Base of the two patterns of the Sparse Transformer (Child et al., 2019, arXiv:1904.10509,
    section 4.3).
    """

    stride: int = 128  # tokens
    # whether heads see both patterns; else even heads see the first, odd ones the second
    merged: bool = True

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", stride=1, summary=1)

    def combined(self, near: Tensor, far: Tensor, head: Tensor) -> Tensor:
        """Both patterns, merged, or one of them in each head."""
        return near | far if self.merged else torch.where(head % 2 == 0, near, far)

    @property
    def per_head(self):
        return not self.merged
