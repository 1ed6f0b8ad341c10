"""Two streams: one normalised, one plain."""

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement


@PLACEMENTS.register("resi_dual", also_called=("resdual", "ResiDual"), similar=("residual",))
class ResiDual(Placement):
    """Two streams: x <- norm(x + f(x)) as in post, d <- d + f(x) as in pre; the output is x +
    norm(d), with the final norm (Xie et al., 2023, arXiv:2304.14802).
    """

    def __init__(self, norm: MakeNorm):
        super().__init__()
        self.norm = norm()

    @classmethod
    def streams(cls, options):
        return 2

    def forward(self, state, f, tokens):
        x, dual = state
        added = f(x)
        return self.norm(x + added), dual + added

    @staticmethod
    def finish(state, norm):
        x, dual = state
        return x + norm(dual)
