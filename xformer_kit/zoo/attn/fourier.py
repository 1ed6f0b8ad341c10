"""A Fourier transform instead of attention."""

import math

import torch

from xformer_kit.attention import ATTENTIONS, at_least_fp32
from xformer_kit.zoo.attn._whole_text import BREAKS, WholeTextAttention, text_rows


@ATTENTIONS.register("fourier", also_called=("fnet", "fft"))
class Fourier(WholeTextAttention):
    """Re(F_seq F_dim x), the discrete Fourier transform over the tokens of a text and over channels
    (FNet: Lee-Thorp et al., 2021, arXiv:2105.03824, section 3.2). It has no parameters.
    """

    # Authors' code: padding is transformed with the text.   Here: a text is transformed over its
    # own length.

    breaks = BREAKS | {"symmetry": "waves run in the order of the tokens"}
    computes = "mixture"
    cross_reason = "has no queries, which cross attention needs"

    def __init__(self):
        super().__init__()

    def forward(self, x, source, context, cache=None):
        texts = text_rows(context.query, len(x))
        exact = at_least_fp32(x)  # not all devices support transforms in half precision
        if texts.length is None:
            return torch.fft.fft2(exact).real.to(x.dtype)
        waves, slot = torch.fft.fft(texts.to_rows(exact)), torch.arange(texts.n, device=x.device)
        length = texts.length.clamp(min=1)[:, None, None]
        turns = (slot[:, None] * slot % length).to(exact.dtype)
        angle = turns * (2 * math.pi) / length  # (rows, n, n)
        mixed = angle.cos() @ waves.real + angle.sin() @ waves.imag  # tokens after the end are zero
        return texts.from_rows(mixed, len(x)).to(x.dtype)

    def attention_weights(self, calls, probe):
        return None
