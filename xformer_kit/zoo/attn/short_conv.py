"""A gated convolution over the last few tokens instead of attention."""

from torch import nn

from xformer_kit.attention import ATTENTIONS, Attention
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import (
    ShortConvolution,
    StateCache,
    SubmoduleInfo,
    document_segments,
    hidden,
)


@ATTENTIONS.register("short_conv", also_called=("gated_conv", "lfm2_conv"))
class ShortConv(Attention):
    """(c_t * sum_j w_j (b * v)_{t-j}) O in each channel, j = 0, ..., width - 1, with v = x V and
    the gates b = x B and c = x C (LFM2: Liquid AI, 2025, arXiv:2511.23404).

    A token reads the `width - 1` real tokens before it in its document, and generation keeps only
    those.
    """

    variants = [{"width": 3}]
    computes = "mixture"
    fusible = ("gate_in", "gate_out", "v")

    parameter_info = {
        "gate_in": hidden("dim", "dim", scales_output=True),
        "gate_out": hidden("dim", "dim", scales_output=True),
        "v": hidden("dim", "dim", scales_output=True),
        "conv": SubmoduleInfo({"convolved": "dim"}),
        "o": hidden("dim", "dim", writes=True),
    }

    def __init__(
        self,
        dim: int,
        *,
        width: int = 3,  # tokens in the window of the convolution, the token itself included
    ):
        super().__init__()
        self.gate_in = nn.Linear(dim, dim, False)
        self.gate_out = nn.Linear(dim, dim, False)
        self.v = nn.Linear(dim, dim, False)
        self.conv = ShortConvolution(dim, width)
        self.o = nn.Linear(dim, dim, False)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", width=1)

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            rule = "'short_conv' reads the tokens before each token, and a source has none"
            fix = "Choose model.decoder.cross.name=multi_head."
            yield Fault("", rule, fix=fix)
            return
        mask, position = context.names["mask"], context.names["position"]
        left, right = context.mask.band or (0, None)
        if right != 0 or left < options.width - 1:
            rule = f"'short_conv' reads {options.width - 1} tokens before each token and none"
            option = (
                context.mask_path if context.mask_path == "mask" else f"{context.mask_path}.name"
            )
            rule += f" after it, and mask '{mask}' hides some or shows more"
            yield Fault("", rule, fix=f"Choose {option}=causal.")
        if set(context.position.enters) - {"embed"}:
            rule = f"'short_conv' has no scores, into which position '{position}' enters"
            yield Fault("", rule, fix="Choose position=none, learned or sinusoidal.")

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim). `cache` holds the last inputs of the
        convolution.
        """
        gate_in, gate_out, v = self.project_input(x, context)
        if cache is None:
            before = v.new_zeros(len(v), self.conv.width - 1, v.shape[-1])
        else:
            (before,) = cache.tensors
        segment = document_segments(context.query, context.key)
        out, last = self.conv(gate_in * v, before, context.query.real, segment)
        if cache is not None:
            cache.append(last)
            cache.length += x.shape[1]
        return self.o(gate_out * out)

    def attention_weights(self, calls, probe):
        return None

    def cache(self, rows, length):
        channels = len(self.conv.weight)
        return StateCache.of(self, (rows, self.conv.width - 1, channels))
