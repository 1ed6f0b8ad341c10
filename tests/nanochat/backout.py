"""The stream of the middle layer is subtracted (nanochat, https://github.com/karpathy/nanochat)."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, from_memory, to_memory


@EXTRAS.register("backout")
class Backout(Extra):
    """x - factor * y before the final norm, with y the same stream after layer layers / 2; factor
    starts at 0.2.
    """

    def __init__(self, layers: int):
        super().__init__()
        self.middle = layers // 2
        self.factor = nn.Parameter(torch.tensor([0.2]))

    def after_layer(self, state, layer):
        return state, to_memory(state, "middle") if layer.depth == self.middle else {}

    def final(self, state, layer):
        middle = from_memory(layer.memory, "middle")
        return layer.placement.combine_streams(state, middle, lambda x, y: x - self.factor * y)
