"""Two residual streams: sublayers read one of them and add to the other, alternately."""

import torch

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms


@PLACEMENTS.register("reversible", also_called=("revnet", "rev"), similar=("reformer",))
class Reversible(Placement):
    """y_1 = x_1 + f(norm(x_2)), y_2 = x_2 + g(norm(y_1)), so that x_2 = y_2 - g(norm(y_1)) and x_1
    = y_1 - f(norm(x_2)).

    Section 3 of Reformer (Kitaev et al., 2020, arXiv:2001.04451), after RevNet (Gomez et al., 2017,
    arXiv:1707.04585).

    Group after group of sublayers reads the stream that was written last and adds to the other,
    whatever a block's layout; sublayers in parallel are summed. Both streams start as the
    embedding, and the output is the norm of their mean. Only the equations are those of the paper:
    activations are stored as in any other placement and not recomputed, so no memory is saved.
    """

    variants = [{"shared": False}]

    def __init__(
        self,
        norm: MakeNorm,
        parallel: int,
        *,
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)

    @classmethod
    def streams(cls, options):
        return 2

    def forward(self, state, f, tokens):
        other, read = state
        return read, other + f(self.norm(read))

    @staticmethod
    def finish(state, norm):
        return norm(torch.stack(state).mean(0))
