"""Matrices of length 1."""

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.model.init import unit_weights


@EXTRAS.register("unit_weights", also_called=("normalized_weights",))
class UnitWeights(Extra):
    """Matrices are kept at length 1 along the channels of the residual stream, from the start and
    after every step (nGPT: Loshchilov et al., 2024, arXiv:2410.01131, sections 2.1, 2.3.2 and
    2.4.2).
    """

    def __init__(self):
        super().__init__()

    def constrain(self, model):
        unit_weights(model)
