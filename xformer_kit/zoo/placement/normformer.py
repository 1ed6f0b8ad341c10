"""A second norm after attention."""

from collections.abc import Sequence

from torch import nn

from xformer_kit.placement import PLACEMENTS, ChannelScale, MakeNorm, Placement, SublayerNorms
from xformer_kit.registry import Unused


@PLACEMENTS.register("normformer", also_called=("norm_former",))
class NormFormer(Placement):
    """x + norm_out(f(norm_in(x))) around attention, x + f(norm(x)) around a feed-forward network
    (Shleifer et al., 2021, arXiv:2110.09456).

    The other parts of NormFormer are options of other components: the norm inside the feed-forward
    network is ffn.inner_norm=true; the factor of each head is an option of the attention.
    """

    variants = [{"scale_residual": True, "shared": False}]

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        kinds: Sequence[str],
        *,
        # whether parallel sublayers share one norm; each attention has its own after it
        shared: bool = True,
        # whether a feed-forward network is added to weight * x (ResScale)
        scale_residual: bool = False,
    ):
        super().__init__()
        self.before = SublayerNorms(norm, len(kinds), shared)
        self.after = nn.ModuleList(norm() if kind == "attn" else nn.Identity() for kind in kinds)
        self.stream = ChannelScale(dim, 1.0) if scale_residual and "ffn" in kinds else nn.Identity()

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if "ffn" not in context.parallel:
            yield Unused(
                "scale_residual",
                "scales the stream that a feed-forward network is added to, and no layer has one",
                got="true",
                fix="Set it to false.",
            )

    def forward(self, state, f, tokens):
        (x,) = state
        added = f(self.before(x), after=self.after)
        return (self.stream(x) + added,)
