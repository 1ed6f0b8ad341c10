"""The stream after the middle layer, subtracted before the final norm."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, from_memory, to_memory
from xformer_kit.extra.join import JoiningExtra
from xformer_kit.tensors import vector


@EXTRAS.register("backout")
class Backout(Extra):
    """x - factor * y before the final norm, with y the same stream after layer layers / 2 (counted
    from 0; of two layers, after the first); factor is learned and starts at 0.2 (nanochat:
    Karpathy, 2026, https://github.com/karpathy/nanochat).
    """

    parameter_info = {"factor": vector("1")}

    def __init__(self, layers: int):
        super().__init__()
        self.middle = min(layers // 2, layers - 2)
        self.factor = nn.Parameter(torch.tensor([0.2]))

    @classmethod
    def cannot(cls, options, context):
        yield from JoiningExtra.cannot(options, context)

    def after_layer(self, state, layer):
        return state, to_memory(state, "middle") if layer.depth == self.middle else {}

    def final(self, state, layer):
        middle = from_memory(layer.memory, "middle")
        return layer.placement.combine_streams(state, middle, lambda x, y: x - self.factor * y)
