"""The last layer of a network of the distance."""

import torch
from torch import Tensor

from xformer_kit.position import exact


def of_heads(hidden: Tensor, weight: Tensor, head: Tensor) -> Tensor:
    """The last layer of a network over pairs of tokens: hidden (b, 1, q, k, width), weight (heads,
    width), head (1, h, 1, 1) -> (b, h, q, k). For one pair and one head, both scalars: hidden
    (width,) -> a scalar.
    """
    rows = exact(weight)[head]
    if head.ndim == 0:
        return (hidden * rows).sum(-1)
    return torch.einsum("biqkw,ihmnw->bhqk", hidden, rows)
