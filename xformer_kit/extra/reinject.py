"""The first layer's input enters every other layer."""

from torch import nn

from xformer_kit.extra.base import EXTRAS, from_memory, to_memory
from xformer_kit.extra.join import Join, JoinForm, JoiningExtra


@EXTRAS.register("reinject", also_called=("input_injection",))
class Reinject(JoiningExtra):
    """Before each layer but the first, each residual stream x becomes join(x, y), with y the same
    stream before the first layer (input injection as in DEQ: Bai et al., 2019, arXiv:1909.01377).
    """

    variants = [{"way": "factor"}, {"way": "matrix"}]

    def __init__(
        self,
        dim: int,
        layers: int,
        *,
        way: JoinForm = "factor",  # a x + b y, or x + [x, y] W
    ):
        super().__init__()
        self.joins = nn.ModuleDict({str(depth): Join(dim, way) for depth in range(1, layers)})

    def before_layer(self, state, layer):
        if not layer.depth:
            return state, to_memory(state, "first")
        join = self.joins[str(layer.depth)]
        return layer.placement.joined(state, from_memory(layer.memory, "first"), join), {}
