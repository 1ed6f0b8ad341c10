"""Norms of queries and keys: python train.py components=[docs/examples/unweighted.py]
attn.qk_norm=unweighted
"""

from torch import nn

from xformer_kit.attention import QK_NORMS, QKNorm
from xformer_kit.registry import at_least


@QK_NORMS.register("unweighted")
class Unweighted(QKNorm):
    """q / rms(q) and k / rms(k) in each head, without weights and whatever the norm of the block is
    (nanochat, https://github.com/karpathy/nanochat).
    """

    def __init__(self, norm, *, eps: float = 1e-6):  # added to the mean square
        super().__init__(norm)
        self.eps = eps

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, eps=0)

    def of_query(self, heads, head_dim):
        return nn.RMSNorm(head_dim, eps=self.eps, elementwise_affine=False)

    of_key = of_query
