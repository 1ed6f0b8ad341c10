"""Any module of torch: python train.py components=[docs/examples/any_module.py] ffn=any_module"""

from torch import nn

from xformer_kit.ffn import FFN, FFNS


@FFNS.register("any_module")
class AnyModule(FFN):
    """gelu(x U + a) D + b, as modules of torch (Vaswani et al., 2017, arXiv:1706.03762, eq. 2)."""

    def __init__(self, dim: int, *, width: int = 256):  # hidden channels
        super().__init__()
        self.module = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, dim))

    def forward(self, x, context):
        return self.module(x), {}
