"""A kernel: python train.py components=[docs/examples/fp64.py] kernel=fp64"""

from functools import partial

import torch
from torch.nn import functional as F

from xformer_kit.kernel import KERNELS, Kernel, bias, scaled_products
from xformer_kit.tensors import expand_heads, masked_weights


@KERNELS.register("fp64")
class FP64(Kernel):
    """softmax(mask(q k^T * scale + bias)) v in fp64, which shows what rounding changes (Vaswani et
    al., 2017, arXiv:1706.03762, eq. 1).
    """

    def prepare(self, context, heads, biased, dtype):
        return context.visible(heads), bias(context, heads) if biased else None

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None, score_fn=None):
        (seen, added), softmax = context.prepared, partial(torch.softmax, dim=-1)
        scores = scaled_products(q.double(), k.double(), scale) if scores is None else scores
        scores = scores if added is None else scores + added
        weights = score_fn or partial(masked_weights, weights=softmax)
        kept = F.dropout(weights(scores.double(), seen), dropout)
        return (kept @ expand_heads(v.double(), q.shape[1])).to(v.dtype)
