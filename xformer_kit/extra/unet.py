"""Skips from the first half of a stack to the second."""

from torch import nn

from xformer_kit.extra.base import EXTRAS, from_memory, to_memory
from xformer_kit.extra.join import Join, JoinForm, JoiningExtra


@EXTRAS.register("unet", also_called=("unet_skips",))
class UNet(JoiningExtra):
    """Before layer n - 1 - i of n in the second half, each residual stream x becomes join(x, y),
    with y the same stream before layer i (U-ViT: Bao et al., 2022, arXiv:2209.12152, section 3.1).
    """

    # U-ViT: y is the output of layer i, joined as [x, y] W.   Here: y is its input, as in
    # x-transformers, so that in a stack of an even number of layers the two in the middle are
    # joined too; x + [x, y] W starts as x.

    variants = [{"way": "matrix"}, {"way": "factor"}]

    def __init__(
        self,
        dim: int,
        layers: int,
        *,
        way: JoinForm = "factor",  # a x + b y, or x + [x, y] W
    ):
        super().__init__()
        self.last = layers - 1
        late = range(layers - layers // 2, layers)
        self.joins = nn.ModuleDict({str(depth): Join(dim, way) for depth in late})

    def before_layer(self, state, layer):
        if str(layer.depth) not in self.joins:
            return state, to_memory(state, f"layer_{layer.depth}")
        earlier = from_memory(layer.memory, f"layer_{self.last - layer.depth}")
        return layer.placement.joined(state, earlier, self.joins[str(layer.depth)]), {}
