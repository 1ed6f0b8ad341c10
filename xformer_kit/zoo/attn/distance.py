"""Attention with scores from the distance between queries and keys."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import (
    ATTENTIONS,
    HeadShape,
    MultiHead,
    Projections,
    Score,
    SoftmaxScore,
    WeightOptions,
    channels,
)
from xformer_kit.kernel import Kernel, expand_heads
from xformer_kit.registry import Fault
from xformer_kit.tensors import vector

LARGEST = 2.0**15  # about the largest number in fp16


@ATTENTIONS.register("distance", also_called=("l2_distance", "l2_attention", "euclidean"))
class Distance(MultiHead):
    """softmax(mask(-|q - k|^2 * scale)) v in each head (L2 self-attention: Kim et al., 2021,
    arXiv:2006.04710).

    It is the product of [2 q, -s |q|^2, 1 / s] and [k, 1 / s, -s |k|^2], s the scale, which every
    kernel can compute; a position with its own scores replaces q k^T.
    """

    # Paper: one projection for queries and keys, which gives a Lipschitz bound.   Here: two
    # projections, and no bound.

    variants = [{"bias": True, "scale": 0.3, "score": {"name": "softmax", "sinks": True}}]
    # The keys' bias changes distances to queries by different amounts.
    parameter_info = {"k.bias": vector("kv_heads*head_dim", bias=True)}

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
        scale: float | None = None,  # factor on squared distances; null is head_dim^-0.5
        # how scores, minus squared distances, become weights
        score: Callable[..., Score] = SoftmaxScore,
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            shape=HeadShape(heads, kv_heads, head_dim),
            projections=Projections(bias),
            weights=WeightOptions(scale, score, dropout=dropout),
        )

    @classmethod
    def traits(cls, options, dim):
        traits = super().traits(options, dim)
        return replace(traits, width=traits.head_dim + channels(traits.head_dim, 2))

    @classmethod
    def cannot(cls, options, context):
        if (score := context.attn.score) in ("relu2", "selective"):
            yield Fault(
                "",
                f"scores are minus squared distances, and attn.score '{score}' works with what is"
                " above 0",
                fix="Choose attn.score=softmax.",
            )
        elif not context.position.isometric:
            yield Fault(
                "",
                f"position '{context.names['position']}' makes queries and keys longer and shorter,"
                " so that their distance would depend on their positions",
                fix="Choose position=rotary.",
            )
        else:
            yield from super().cannot(options, context)

    def kernel_inputs(
        self, q: Tensor, k: Tensor, scores: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        # Squares are scaled before they are summed: the sum may overflow in fp16.
        unit = min(1 / self.factor, LARGEST)
        scale = 1 / unit if scores is None else self.scale
        of_q, of_k = ((x * scale * x).sum(-1, keepdim=True) for x in (q, k))
        if scores is not None:
            return q, k, 2 * scores - (of_q + expand_heads(of_k, q.shape[1]).mT)
        q = torch.cat([2 * q, -of_q, torch.full_like(of_q, unit)], -1)
        k = torch.cat([k, torch.full_like(of_k, unit), -of_k], -1)
        zeros = 0, channels(self.head_dim, 2) - 2
        return F.pad(q, zeros), F.pad(k, zeros), None
