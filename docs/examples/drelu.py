"""An expert: python train.py components=[docs/examples/drelu.py] ffn=moe ffn.expert=drelu"""

from torch.nn import functional as F

from xformer_kit.ffn import EXPERTS, Dense, hidden_width


@EXPERTS.register("drelu")
class DReLU(Dense):
    """(relu(x G) * relu(x U)) D, of which most channels are 0 (Song et al., 2024, arXiv:2406.05955,
    section 3).
    """

    def __init__(self, dim: int, norm, linear, width, expand, multiple_of):
        width = hidden_width(dim, width, expand, 8 / 3, multiple_of or 8)
        super().__init__(dim, width, norm, linear, False, False, "", 0.0)

    def activated_channels(self, gate, up):
        return F.relu(gate) * F.relu(up)
