"""Attention with scores from the angle between queries and keys."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from xformer_kit.attention import (
    ATTENTIONS,
    L2,
    HeadShape,
    MultiHead,
    Projections,
    WeightOptions,
)
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault, above
from xformer_kit.tensors import vector
from xformer_kit.tensors.tokens import scaled_to_unit


class CosineScale(nn.Module):
    """x / |x| over head_dim, times a learned factor of each head, min(exp(log_factor), largest)."""

    parameter_info = {"log_factor": vector("heads", shared_by_heads=False)}

    def __init__(self, heads: int, start: float, largest: float):
        super().__init__()
        self.log_factor = nn.Parameter(torch.full((heads,), math.log(start)))
        self.largest = largest

    def forward(self, x: Tensor) -> Tensor:
        factor = self.log_factor.exp().clamp(max=self.largest)[:, None, None]
        return (scaled_to_unit(x) * factor).to(x.dtype)


@ATTENTIONS.register(
    "cosine", also_called=("cosine_similarity", "scaled_cosine"), similar=("qknorm",)
)
class CosineAttention(MultiHead):
    """softmax(mask(g cos(q, k))) v in each head, with a learned g of each head (Henry et al., 2020,
    arXiv:2010.04245). As in Swin v2, g starts at 10 and does not exceed 100 (Liu et al., 2021,
    arXiv:2111.09883, eq. 2: tau = 1 / g).
    """

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        *,
        heads: int = 8,  # query heads
        kv_heads: int | None = None,  # key and value heads; null is heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        bias: bool = False,  # whether the four projections have biases
        start: float = 10.0,  # initial factor on cosines
        largest: float = 100.0,  # upper bound of the factor
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            shape=HeadShape(heads, kv_heads, head_dim),
            projections=Projections(bias, qk_norm=L2),
            weights=WeightOptions(scale=1.0, dropout=dropout),
        )
        self.q_norm = CosineScale(heads, start, largest)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, start=0)
        if options.largest < options.start:
            yield Fault(
                "largest",
                "must be at least attn.start",
                got=f"{options.largest} and {options.start}",
                fix=f"Try {options.start:g}.",
            )
