"""A feed-forward network: python train.py components=[docs/examples/maxout.py] ffn=maxout"""

from torch import nn

from xformer_kit.ffn import FFN, FFNS
from xformer_kit.registry import at_least


@FFNS.register("maxout")
class Maxout(FFN):
    """max_j(x U_j) D, the largest of several linear maps in each channel (Goodfellow et al., 2013,
    arXiv:1302.4389, section 2).
    """

    def __init__(
        self,
        dim: int,
        *,
        width: int = 256,  # hidden channels
        pieces: int = 2,  # linear maps of each channel
    ):
        super().__init__()
        self.pieces = pieces
        self.up = nn.Linear(dim, width * pieces, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, width=1, pieces=1)

    def forward(self, x, context):
        return self.down(self.up(x).unflatten(-1, (-1, self.pieces)).amax(-1)), {}
