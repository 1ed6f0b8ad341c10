"""The stream after the middle layer, subtracted before the final norm."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, from_memory, to_memory
from xformer_kit.registry import Fault
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
        self.factor = nn.Parameter(torch.tensor([0.2])) if layers > 1 else None

    @classmethod
    def cannot(cls, options, context):
        if max(len(stack.blocks) for stack in context.stacks) < 2:
            yield Fault("", "needs two layers", fix="Try model.layers=2, or leave it out.")

    def after_layer(self, state, layer):
        return state, to_memory(state, "middle") if layer.depth == self.middle else {}

    def final(self, state, layer):
        if self.factor is None:
            return state
        middle = from_memory(layer.memory, "middle")
        return layer.placement.combine_streams(state, middle, lambda x, y: x - self.factor * y)
