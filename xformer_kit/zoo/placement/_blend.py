"""Weighted sums of streams."""

from collections.abc import Sequence

import torch
from torch import Tensor


def blend(weights: Sequence[Tensor], streams: Sequence[Tensor]) -> Tensor:
    """sum_i weights[i] * streams[i]: (b, t, 1) or (1,) and (b, t, dim). Not a matrix product, which
    autocast would compute, and round the residual stream, in half precision.
    """
    total = weights[0] * streams[0]
    for weight, stream in zip(weights[1:], streams[1:], strict=True):
        total = torch.addcmul(total, weight, stream)
    return total
