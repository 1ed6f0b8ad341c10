"""An extra with parameters and a cache for each layer: python train.py
components=[docs/examples/canon_a.py] extra.canon_a={}
"""

from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.registry import at_least
from xformer_kit.tensors import ShortConvolution, StateCache, document_segments


class CanonOfLayer(Extra):
    """The convolution of one layer; `layer.cache` holds the last inputs in generation."""

    def __init__(self, dim, tokens):
        super().__init__()
        self.convolution = ShortConvolution(dim, tokens)

    def wrap(self, name, branch, layer):
        return (lambda x: branch(x + self.convolved(x, layer))) if name == "attn" else branch

    def convolved(self, x, layer):
        cache = layer.cache and layer.cache[f"{layer.depth}"]
        past = (
            cache.tensors[0]
            if cache
            else x.new_zeros(len(x), self.convolution.width - 1, x.shape[2])
        )
        out, past = self.convolution(x, past, layer.tokens.real, layer.memory.get("segment"))
        if cache:
            cache.append(past)
        return out


@EXTRAS.register("canon_a")
class CanonA(Extra):
    """x_t + sum_j w_j x_{t-j}, j = 0, ..., tokens - 1, for the input x of each layer's attention
    (Allen-Zhu, 2025, "Physics of Language Models: Part 4.1", section 4).
    """

    layer_class = CanonOfLayer

    def __init__(
        self, dim: int, block_index: tuple[int, ...], *, tokens: int = 4
    ):  # tokens that it reads
        super().__init__()
        self.dim, self.block_index, self.tokens = dim, block_index, tokens

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens", tokens=2)

    def layer_module(self, depth, sublayers):
        self.layers[f"{depth}"] = CanonOfLayer(self.dim, self.tokens)
        return self.layers[f"{depth}"]

    def prepare(self, layer):
        segment = document_segments(layer.tokens, layer.key)  # None for rows of one document
        return {} if segment is None else {"segment": segment}

    def caches(self, rows, length, like):
        shape = rows, self.tokens - 1, self.dim
        return {
            f"{depth}": StateCache(like.new_zeros(shape)) for depth in range(len(self.block_index))
        }
