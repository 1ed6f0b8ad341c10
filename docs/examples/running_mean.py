"""An attention with a cache of its own: python train.py
components=[docs/examples/running_mean.py] attn=running_mean position=learned
"""

from torch import nn

from xformer_kit.attention import ATTENTIONS, Attention, Cache
from xformer_kit.registry import Fault


class SumCache(Cache):
    """The sum of the values of all tokens and their number, (rows, 1, dim) and (rows, 1, 1)."""

    can_rewind = False

    def __init__(self, *tensors):
        self.tensors = tensors

    def append(self, *new):
        sums = [old + x.cumsum(1) for old, x in zip(self.tensors, new, strict=True)]
        self.tensors = [x[:, -1:] for x in sums]
        return sums


@ATTENTIONS.register("running_mean")
class RunningMean(Attention):
    """mean(v_1, ..., v_t) O with v = x V (Zhang et al., 2018, arXiv:1805.00631, eq. 1)."""

    computes = "mixture"
    breaks = {"documents": "the mean is over all tokens before it, whatever their document"}

    def __init__(self, dim: int):
        super().__init__()
        self.v, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    @classmethod
    def cannot(cls, options, context):
        scored = set(context.position.enters) - {"embed"}
        if scored or context.cross or context.mask.band != (float("inf"), 0):
            fix = "Use mask=causal and position=learned, sinusoidal or none."
            yield Fault("", "is a mean over the tokens before it, without scores", fix=fix)

    def forward(self, x, source, context, cache=None):
        new = self.v(x), x.new_ones(*x.shape[:2], 1)
        if (real := context.query.real) is not None:
            new = [y * real[..., None] for y in new]
        total, count = [y.cumsum(1) for y in new] if cache is None else cache.append(*new)
        return self.o(total / count.clamp(min=1))

    def cache(self, rows, length):
        like = self.v.weight
        return SumCache(like.new_zeros(rows, 1, len(like)), like.new_zeros(rows, 1, 1))
