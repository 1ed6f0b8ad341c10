"""Attentions without projections, for teaching: the mean, and dot products of the tokens
themselves.
"""

import torch
from torch import Tensor

from xformer_kit.attention.base import ATTENTIONS, Attention
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault, above, in_range
from xformer_kit.tensors.cache import KeyValueCache


class Unprojected(Attention):
    """Base of attentions without parameters: one head with the channels of the model.

    num_cached: number of tensors in the cache.
    """

    num_cached = 1
    device_and_dtype: Tensor

    def __init__(self, dim: int, kernel: Kernel, dropout: float):
        super().__init__()
        self.dim = dim
        self.kernel = kernel
        self.dropout = dropout
        # An empty buffer, which has the model's device and dtype.
        self.register_buffer("device_and_dtype", torch.empty(0), persistent=False)

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, dropout=(0, 1))

    def call_kernel(self, q: Tensor, k: Tensor, v: Tensor, context, scale: float) -> Tensor:
        """The output of the one head, (b, t, dim)."""
        scores = context.position.scores(self, q, k, context) if context.scored else None
        out = self.kernel(q, k, v, context, scale, self.dropout if self.training else 0.0, scores)
        return out[:, 0]  # (b, 1, t, dim) -> (b, t, dim)

    def cache(self, rows, length):
        shape = (rows, 1, length, self.dim)
        like = self.device_and_dtype
        return KeyValueCache(*[shape] * self.num_cached, dtype=like.dtype, device=like.device)


@ATTENTIONS.register("mean", also_called=("average", "uniform"))
class Mean(Unprojected):
    """The mean of all visible tokens: attention whose scores are all 0. A position's bias makes it
    a weighted mean (Zhang et al., 2018, arXiv:1805.00631, eq. 1: the average attention network,
    without its gates).
    """

    scale = 1.0

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        dropout: float = 0.0,  # probability, on the weights
    ):
        super().__init__(dim, kernel, dropout)

    @classmethod
    def cannot(cls, options, context):
        hooks = context.position.enters
        if context.cross:
            yield Fault(
                "",
                "mean does not depend on the queries, so that across two stacks the norm before it"
                " would have no gradient",
                fix="Name another attention in model.decoder.cross, e.g. {name: multi_head}.",
            )
        elif "rotate" in hooks or ("scores" in hooks and context.position.channels):
            yield Fault(
                "",
                "mean has no queries and keys, with which position"
                f" '{context.names['position']}' works",
                fix="Choose position=learned, alibi or none.",
            )

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        v = (x if source is None else source)[:, None]
        if cache is not None:
            (v,) = cache.kept() if source is not None and cache.length else cache.append(v)
        q, k = x.new_zeros(x.shape[0], 1, x.shape[1], 1), v.new_zeros(*v.shape[:3], 1)
        return self.call_kernel(q, k, v, context, 1.0)


@ATTENTIONS.register("dot", similar=("dot_product",))
class Dot(Unprojected):
    """softmax(mask(x x^T / sqrt(dim))) x: tokens attend to similar tokens (Luong et al., 2015,
    arXiv:1508.04025, section 3.1, the score `dot`; scaled as in Vaswani et al., 2017,
    arXiv:1706.03762, eq. 1).
    """

    num_cached = 2

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        scale: float | None = None,  # factor on the scores; null is dim^-0.5
        dropout: float = 0.0,  # probability, on the weights
    ):
        super().__init__(dim, kernel, dropout)
        self.scale = dim**-0.5 if scale is None else scale

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, "null is dim^-0.5.", scale=0)

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        position = context.position
        q = position.rotate(x[:, None], context.query)
        if source is not None and cache is not None and cache.length:
            return self.call_kernel(q, *cache.kept(), context, self.scale)
        k = v = (x if source is None else source)[:, None]
        k = position.rotate_key(k, context.query if source is None else context.key)
        if cache is not None:
            k, v = cache.append(k, v)
        return self.call_kernel(q, k, v, context, self.scale)
