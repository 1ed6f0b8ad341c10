"""The reference kernel: attention as in its equations. Tests compare every other kernel with it."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.kernel.base import KERNELS, Kernel, KernelExplanation, bias
from xformer_kit.kernel.recurrence import steps
from xformer_kit.tensors.tokens import expand_heads, masked_weights, scaled_products


@KERNELS.register("reference", also_called=("eager", "math", "naive"))
class Reference(Kernel):
    """softmax(mask(q k^T * scale + bias)) v, per head (Vaswani et al., 2017, arXiv:1706.03762, eq.
    1). Attentions that keep a state: token by token.
    """

    computes = ("scores", "recurrence", "mixture")

    def prepare(self, context, heads, biased, dtype):
        added = bias(context, heads).to(dtype) if biased else None
        return context.visible(heads), added

    def explain(self, prepared, queries, keys, dropout):
        # Weights, and the same after empty rows are set to zero.
        copies = 1 if prepared[0] is None else 2
        return KernelExplanation(
            "step by step, as the equations are written", copies * queries * keys
        )

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        return self.weights(q, k, context, scale, dropout, scores, score_fn) @ expand_heads(
            v, q.shape[1]
        )

    def recur(self, recurrence, state, chunk):
        return steps(recurrence, state)

    def weights(self, q, k, context, scale, dropout=0.0, scores=None, score_fn=None) -> Tensor:
        """q (b, h, t, d), k (b, kv, s, d) -> the attention weights (b, h, t, s). With softmax every
        row sums to 1, or to 0 if it has no visible keys. Other arguments are those of a call.
        """
        seen, added = context.prepared
        if scores is None:
            scores = scaled_products(q, k, scale)
        if added is not None:
            scores = scores + added
        if score_fn is not None:
            weights = score_fn(scores, seen)
        else:
            weights = masked_weights(scores, seen, partial(torch.softmax, dim=-1))
        return F.dropout(weights, dropout) if dropout else weights
