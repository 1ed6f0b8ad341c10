"""The first layer's input enters every other layer."""

from xformer_kit.extra.base import EXTRAS
from xformer_kit.extra.join import JoiningExtra


@EXTRAS.register("reinject", also_called=("input_injection",))
class Reinject(JoiningExtra):
    """Before each layer but the first, each residual stream x becomes join(x, y), with y the same
    stream before the first layer (input injection as in DEQ: Bai et al., 2019, arXiv:1909.01377).
    """

    variants = [{"way": "factor"}, {"way": "matrix"}]

    def joined(self, layers):
        return dict.fromkeys(range(1, layers), 0)
