"""Sublayers that read a mix of all streams so far."""

from torch import Tensor, nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, State, SublayerNorms
from xformer_kit.zoo.placement._blend import blend
from xformer_kit.zoo.placement._earlier import BREAKS


@PLACEMENTS.register(
    "lime", also_called=("integrate_layers", "layer_integrated_memory", "dynamic_lime")
)
class LIMe(Placement):
    """x + f(norm(sum_i a_i v_i)) with a = softmax(norm(x) W + b): a sublayer reads a mix of all
    streams so far (LIMe: Gerasimov et al., 2025, arXiv:2502.09245).

    v_i is the stream in front of each group of sublayers, x the newest of them, which stays plain.
    Here the mix is of all that a sublayer reads, as in x-transformers; in the paper it is of the
    keys and values of each head, with weights that are the same for all tokens. Layers that share a
    block have its weights, counted from the newest.
    """

    breaks = BREAKS

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        latest: int,
        parallel: int,
        *,
        # whether parallel sublayers read one norm or one each; they read one mix
        shared: bool = True,
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.before = norm() if latest else None  # the first has nothing to mix
        self.route = nn.Linear(dim, latest + 1) if latest else None  # the newest first

    @classmethod
    def streams(cls, options):
        return "streams"

    def forward(self, state, sublayers, total, tokens):
        x = state[-1]
        return *state, x + total(self.norm.outputs(self._mixed(state), sublayers))

    def _mixed(self, state: State) -> Tensor:
        if self.route is None or self.before is None:
            return state[-1]
        newest = state[::-1]
        weights = self.route(self.before(newest[0]))[..., : len(newest)].softmax(-1)
        return blend(weights.movedim(-1, 0)[..., None], newest)

    @staticmethod
    def joined(state, earlier, join):
        return *state[:-1], join(state[-1], earlier[-1])

    @staticmethod
    def finish(state, norm):
        return norm(state[-1])
