"""Sublayers that read a mixture of all earlier streams."""

from torch import Tensor, nn

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, State, SublayerNorms
from xformer_kit.tensors import hidden
from xformer_kit.zoo.placement._blend import Blend


@PLACEMENTS.register(
    "lime", also_called=("integrate_layers", "layer_integrated_memory"), similar=("dynamic_lime",)
)
class LIMe(Placement):
    """x + f(norm(sum_i a_i v_i)) with a = softmax(norm(x) W + b): a sublayer reads a mixture of
    all earlier streams (LIMe: Gerasimov et al., 2025, arXiv:2502.09245).

    v_i is the stream before each group of sublayers; x, the newest of them, is not changed. Here
    the whole input of a sublayer is mixed, as in x-transformers; in the paper the keys and values
    of each head are, with weights that are the same for all tokens. Layers that share a block share
    its weights, counted from the newest.

    The state grows with each group, so that sublayers and mixtures are compiled, not blocks.
    """

    compiled_parts = ("norm", "before", "mixture")
    parameter_info = {"route": hidden("streams", "dim")}

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        latest: int,
        parallel: int,
        *,
        # whether parallel sublayers share one norm; they read one mixture
        shared: bool = True,
    ):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared)
        self.mixture = Blend()
        self.before = norm() if latest else None  # the first group reads only one stream
        self.route = nn.Linear(dim, latest + 1) if latest else None  # the newest first

    @classmethod
    def streams(cls, options):
        return "streams"

    def forward(self, state, f, tokens):
        x = state[-1]
        return *state, x + f(self.norm(self._mixed(state)))

    def _mixed(self, state: State) -> Tensor:
        """The mixture of all streams that a sublayer reads."""
        if self.route is None or self.before is None:
            return state[-1]
        weight = self.route(self.before(state[-1]))[..., : len(state)].softmax(-1)
        return self.mixture.mix(weight.flip(-1).movedim(-1, 0)[..., None], state)

    @staticmethod
    def combine_streams(state, earlier, join):
        return *state[:-1], join(state[-1], earlier[-1])

    @staticmethod
    def finish(state, norm):
        return norm(state[-1])
