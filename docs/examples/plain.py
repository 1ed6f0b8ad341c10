"""An attention: python train.py components=[docs/examples/plain.py] attn=plain attn.heads=4"""

from torch import nn

from xformer_kit.attention import ATTENTIONS, Attention, KeyValueCache, check_heads


@ATTENTIONS.register("plain")
class Plain(Attention):
    """softmax(mask(q k^T / sqrt(head_dim))) v in each head, also across stacks and with a cache
    (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.2).
    """

    fusible = ("q", "k", "v")

    def __init__(self, dim: int, kernel, *, heads: int = 8):  # number of heads
        super().__init__()
        self.head_dim, self.scale, self.kernel = dim // heads, (dim // heads) ** -0.5, kernel
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)

    def split(self, x):
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (b, h, t, head_dim)

    def forward(self, x, source, context, cache=None):
        q, *new = (self.split(y) for y in self.project_qkv(x, source, context, cache))
        if new:  # not those of a source that is in the cache
            tokens = context.query if source is None else context.key
            new = context.position.rotate_key(new[0], tokens), new[1]
        k, v = new if cache is None else cache.append(*new) if new else cache.kept()
        q = context.position.rotate(q, context.query)
        scores = context.position.scores(self, q, k, context) if context.scored else None
        out = self.kernel(q, k, v, context, self.scale, scores=scores)
        return self.o(out.transpose(1, 2).flatten(2))

    def cache(self, rows, length):
        shape = rows, self.k.out_features // self.head_dim, length, self.head_dim
        return KeyValueCache.of(self, shape, shape)
