"""The first stream enters every layer (nanochat, https://github.com/karpathy/nanochat)."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, from_memory, to_memory


@EXTRAS.register("residual_factors")
class ResidualFactors(Extra):
    """Before layer i each residual stream x becomes a_i x + b_i x_0, with x_0 the same stream
    before the first layer; a_i starts at 1 and b_i at 0.
    """

    def __init__(self, layers: int):
        super().__init__()
        self.own = nn.Parameter(torch.ones(layers))
        self.first = nn.Parameter(torch.zeros(layers))

    def before_layer(self, state, layer):
        added = {} if layer.depth else to_memory(state, "first")
        first = from_memory({**layer.memory, **added}, "first")
        a, b = self.own[layer.depth], self.first[layer.depth]
        return layer.placement.combine_streams(state, first, lambda x, x0: a * x + b * x0), added
