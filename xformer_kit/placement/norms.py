"""Placements that differ only in their norms: before a sublayer, after it, both, or none.

f is a group of parallel sublayers; f(x) is the sum of their outputs, each with dropout and residual
multiplier (`SublayerGroup`). `parallel` is the number of sublayers in the group, `depth` the index
of the layer, from 0.
"""

from xformer_kit.placement.base import PLACEMENTS, MakeNorm, Placement, SublayerNorms


@PLACEMENTS.register("pre", also_called=("pre_norm", "pre_ln", "prenorm"))
class PreNorm(Placement):
    """x + f(norm(x)): the residual stream itself is not normalised (Xiong et al., 2020,
    arXiv:2002.04745, figure 1b).

    Sublayers in parallel are summed, x + f(norm(x)) + g(norm(x)) (Wang and Komatsuzaki, 2021,
    GPT-J). With `depth_scaled` a sublayer of layer l = 1, 2, ... of a stack reads norm(x) /
    sqrt(l), so that the stream's variance grows less with depth (LayerNorm scaling: Sun et al.,
    2025, arXiv:2502.05795, section 4; set init.depth_scaled=false with it). Layers that share a
    block use the l of the first of them.
    """

    def __init__(
        self,
        norm: MakeNorm,
        depth: int,
        parallel: int,
        *,
        # whether parallel sublayers share one norm (GPT-J) or have one each (GPT-NeoX)
        shared: bool = True,
        # whether the output of a norm is divided by sqrt(layer), counted from 1
        depth_scaled: bool = False,
    ):
        super().__init__()
        factor = (depth + 1) ** -0.5 if depth_scaled else None
        self.norm = SublayerNorms(norm, parallel, shared, factor)

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + f(self.norm(x)),)


@PLACEMENTS.register("post", also_called=("post_norm", "post_ln", "postnorm"))
class PostNorm(Placement):
    """norm(x + f(x)): the residual stream is normalised after each sublayer (Vaswani et al., 2017,
    arXiv:1706.03762, section 3.1).
    """

    final_norm = False  # the stream is normalised already

    def __init__(self, norm: MakeNorm):
        super().__init__()
        self.norm = norm()

    def forward(self, state, f, tokens):
        (x,) = state
        return (self.norm(x + f(x)),)


@PLACEMENTS.register("sandwich", also_called=("sandwich_norm",))
class Sandwich(Placement):
    """x + norm_out(f(norm_in(x))): a norm before and after each sublayer (Ding et al., 2021,
    arXiv:2105.13290, section 2.4).

    Also called peri-LN (Kim et al., 2025, arXiv:2502.02732).
    """

    def __init__(
        self,
        norm: MakeNorm,
        parallel: int,
        *,
        # whether parallel sublayers share one norm before them; each has its own after it
        shared: bool = True,
    ):
        super().__init__()
        self.before = SublayerNorms(norm, parallel, shared)
        self.after = SublayerNorms(norm, parallel, shared=False)

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + f(self.before(x), after=self.after),)


@PLACEMENTS.register(
    "output", also_called=("reordered", "reordered_norm", "post_sublayer", "olmo2")
)
class OutputNorm(Placement):
    """x + norm(f(x)): a norm after each sublayer, none before it (OLMo 2's reordered norm: OLMo
    Team, 2025, arXiv:2501.00656, section 3.3.2). Each of several parallel sublayers has its own
    norm.
    """

    def __init__(self, norm: MakeNorm, parallel: int):
        super().__init__()
        self.norm = SublayerNorms(norm, parallel, shared=False)

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + f(x, after=self.norm),)


@PLACEMENTS.register("pre_and_sum")
class PreAndSumNorm(Placement):
    """norm_sum(x + f(norm_in(x))): pre-norm and post-norm together, so the residual stream is
    normalised too.
    """

    final_norm = False

    def __init__(
        self,
        norm: MakeNorm,
        parallel: int,
        *,
        # whether parallel sublayers share one norm before them; their sum has one
        shared: bool = True,
    ):
        super().__init__()
        self.before = SublayerNorms(norm, parallel, shared)
        self.after = norm()

    def forward(self, state, f, tokens):
        (x,) = state
        return (self.after(x + f(self.before(x))),)


@PLACEMENTS.register("none", also_called=("no_norm",))
class NoPlacement(Placement):
    """x + f(x), or f(x) without a residual connection: no norms, not even after the last block."""

    final_norm = False

    def __init__(
        self,
        *,
        residual: bool = True,  # whether x is added
    ):
        super().__init__()
        self.has_residual = residual

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + f(x) if self.has_residual else f(x),)

    def extra_repr(self):
        return f"residual={self.has_residual}"
