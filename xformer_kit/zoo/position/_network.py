"""The last layer of a network that computes biases from distances."""

import torch
from torch import Tensor

from xformer_kit.position import at_least_fp32


def of_heads(hidden: Tensor, weight: Tensor, head: Tensor) -> Tensor:
    """Applies the last layer of a network over pairs of tokens: hidden (b, 1, q, k, width), weight
    (heads, width), head (1, h, 1, 1) -> (b, h, q, k). For one pair and one head: hidden (width,) ->
    a scalar.
    """
    rows = at_least_fp32(weight)[head]
    if head.ndim == 0:
        return (hidden * rows).sum(-1)
    return torch.einsum("biqkw,ihmnw->bhqk", hidden, rows)
