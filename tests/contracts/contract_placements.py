"""A placement that proves the contract: two residual streams."""

from collections.abc import Callable

from torch import nn

from xformer_kit.placement import PLACEMENTS, Placement


@PLACEMENTS.register("test_residual")
class ResiDual(Placement):
    """Two streams: x <- norm(x + f(x)) as in post, d <- d + f(x) as in pre; the output is x +
    norm(d) (Xie et al., 2023, arXiv:2304.14802, section 3.1).
    """

    streams = classmethod(lambda cls, options: 2)

    def __init__(self, norm: Callable[[], nn.Module]):
        super().__init__()
        self.norm = norm()

    def forward(self, state, f, tokens):
        x, dual = state
        out = f(x)
        return self.norm(x + out), dual + out

    @staticmethod
    def finish(state, norm):
        x, dual = state
        return x + norm(dual)
