"""The first stream, added before every layer with a learned factor."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, from_memory, to_memory
from xformer_kit.tensors import vector


@EXTRAS.register("residual_factors", also_called=("resid_lambdas", "x0_lambdas"))
class ResidualFactors(Extra):
    """a_i x + b_i x_0 before layer i, for each residual stream x and the same stream x_0 before the
    first layer; a_i and b_i are learned and start at 1 and 0 (nanochat: Karpathy, 2026,
    https://github.com/karpathy/nanochat).
    """

    parameter_info = {"own": vector("layers"), "first": vector("layers")}

    def __init__(self, layers: int):
        super().__init__()
        self.own = nn.Parameter(torch.ones(layers))
        self.first = nn.Parameter(torch.zeros(layers))

    def before_layer(self, state, layer):
        added = {} if layer.depth else to_memory(state, "first")
        first = from_memory({**layer.memory, **added}, "first")
        a, b = self.own[layer.depth], self.first[layer.depth]
        return layer.placement.combine_streams(state, first, lambda x, x0: a * x + b * x0), added
