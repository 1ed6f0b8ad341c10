"""Skips from the first half of a stack to the second."""

from xformer_kit.extra.base import EXTRAS
from xformer_kit.extra.join import JoiningExtra


@EXTRAS.register("unet", also_called=("unet_skips",))
class UNet(JoiningExtra):
    """Before layer n - 1 - i of n in the second half, each residual stream x becomes join(x, y),
    with y the same stream before layer i (U-ViT: Bao et al., 2022, arXiv:2209.12152, section 3.1).
    """

    # U-ViT: y is the output of layer i, joined as [x, y] W.   Here: y is its input, as in
    # x-transformers, so that in a stack of an even number of layers the two in the middle are
    # joined too; x + [x, y] W starts as x.

    variants = [{"way": "matrix"}, {"way": "factor"}]

    def joined(self, layers):
        return {layers - 1 - depth: depth for depth in reversed(range(layers // 2))}
