"""Weighted sums of streams."""

from collections.abc import Sequence

import torch
from torch import Tensor


def blend(weights: Sequence[Tensor], streams: Sequence[Tensor]) -> Tensor:
    """sum_i weights[i] * streams[i]: (b, t, 1) or (1,) and (b, t, dim). Sums, not a product of
    matrices, which autocast would round to half precision, and with it the residual stream.
    """
    total = weights[0] * streams[0]
    for weight, stream in zip(weights[1:], streams[1:], strict=True):
        total = torch.addcmul(total, weight, stream)
    return total
