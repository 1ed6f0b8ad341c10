"""Attention as its equations are written. Every other kernel is tested equal to it."""

from torch import Tensor
from torch.nn import functional as F

from xformer_kit.kernel.base import KERNELS, Explanation, Kernel, bias, visible
from xformer_kit.kernel.recurrence import steps


@KERNELS.register("reference", also_called=("eager", "math", "naive"))
class Reference(Kernel):
    """softmax(mask(q k^T * scale + bias)) v, per head (Vaswani et al., 2017, arXiv:1706.03762, eq.
    1). Attentions that keep a
    state: token by token."""

    computes = ("scores", "recurrence", "mixture")

    def prepare(self, context, heads, biased, dtype):
        added = bias(context, heads).to(dtype) if biased else None
        return visible(context, heads), added

    def explain(self, prepared, queries, keys, dropout):
        copies = 1 if prepared[0] is None else 2  # weights, and those of rows that see something
        return Explanation("step by step, as the equations are written", copies * queries * keys)

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, weigh=None):
        return self.weights(q, k, context, scale, dropout, scores, weigh) @ spread(v, q.shape[1])

    def recur(self, recurrence, state, chunk):
        return steps(recurrence, state)

    def weights(self, q, k, context, scale, dropout=0.0, scores=None, weigh=None) -> Tensor:
        """The attention weights (b, h, t, s): under softmax every row sums to 1, or to 0 where it
        sees nothing.
        """
        seen, added = context.prepared
        if scores is None:
            scores = (
                q @ spread(k, q.shape[1]).transpose(-1, -2) * scale
            )  # (b, h, t, d) x (b, h, d, s) -> (b, h, t, s)
        if added is not None:
            scores = scores + added
        if weigh is not None:
            weights = weigh(scores, seen)
        elif seen is None:
            weights = scores.softmax(-1)
        else:
            nothing = ~seen.any(
                -1, keepdim=True
            )  # such a row is left whole for a finite softmax, and set to zero behind it
            weights = (
                scores.masked_fill(~(seen | nothing), -float("inf"))
                .softmax(-1)
                .masked_fill(nothing, 0)
            )
        return F.dropout(weights, dropout) if dropout else weights


def spread(x: Tensor, heads: int) -> Tensor:
    """Every group of query heads sees its own key head: (b, kv, t, d) -> (b, h, t, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
