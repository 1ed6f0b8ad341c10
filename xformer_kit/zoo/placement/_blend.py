"""Weighted sums of streams."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.zoo.placement._packed import packed


def blend(weights: Sequence[Tensor], streams: Sequence[Tensor]) -> Tensor:
    """sum_i weights[i] * streams[i]: (b, t, 1) or (1,) and (b, t, dim). Not a matrix product, which
    autocast would compute, and round the residual stream, in half precision.
    """
    total = weights[0] * streams[0]
    for weight, stream in zip(weights[1:], streams[1:], strict=True):
        total = torch.addcmul(total, weight, stream)
    return total


class Mixture(nn.Module):
    """A function of all streams, (n, b, t, dim) or n of (b, t, dim), that is compiled separately:
    of one tensor, so that layers with different numbers of streams have one graph.
    """

    def mix(self, weight: Tensor, streams: Sequence[Tensor]) -> Tensor:
        """The mixture; of one tensor if it is compiled. weight: n numbers, or (n, b, t, 1), in the
        order of the streams; or anything else that a subclass takes.
        """
        if self._compiled_call_impl is None:
            return self(weight, streams)
        return self(*self.dynamic(weight, packed(streams)))

    def dynamic(self, weight: Tensor, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The arguments, whose number of streams is no constant of the graph."""
        for x in (weight, streams):
            torch._dynamo.maybe_mark_dynamic(x, 0)
        return weight, streams


class Blend(Mixture):
    """sum_i weight_i v_i."""

    def forward(self, weight: Tensor, streams: Tensor | Sequence[Tensor]) -> Tensor:
        """weight: (n,) or (n, b, t, 1)."""
        if weight.ndim == 1:
            weight = weight[:, None, None, None]
        if isinstance(streams, Tensor):
            return (weight * streams).sum(0)
        return blend(weight.unbind(), streams)


class AttendOverDepth(Mixture):
    """sum_i softmax_i(query^T v_i / rms(v_i)) v_i, with a query (dim,)."""

    EPS = 1e-6  # of the norm of the keys

    def forward(self, query: Tensor, streams: Tensor | Sequence[Tensor]) -> Tensor:
        if isinstance(streams, Tensor):
            weight = self.score(query, streams).softmax(0)
            return (weight * streams).sum(0)
        scores = [self.score(query, v) for v in streams]
        return blend(torch.stack(scores).softmax(0).unbind(), streams)

    def score(self, query: Tensor, v: Tensor) -> Tensor:
        """query^T v / rms(v), (..., dim) -> (..., 1)."""
        return (F.rms_norm(v, query.shape, eps=self.EPS) * query).sum(-1, keepdim=True)

    def dynamic(self, weight: Tensor, streams: Tensor) -> tuple[Tensor, Tensor]:
        torch._dynamo.maybe_mark_dynamic(streams, 0)
        return weight, streams
