"""attn short_conv: by its equation, equal to LFM2's layer, and refused where it cannot be."""

import os

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import layer

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 2, 5])
def test_by_the_equation(width):
    attn, x, out = layer(name="short_conv", width=width)
    h = attn.gate_in(x) * attn.v(x)
    rows = [
        sum(attn.conv.weight[:, -1 - j] * h[:, t - j] for j in range(width) if t >= j)
        for t in range(x.shape[1])
    ]
    assert_close(out, attn.o(attn.gate_out(x) * torch.stack(rows, 1)))


@torch.no_grad()
def test_the_layer_is_that_of_lfm2():
    transformers = pytest.importorskip("transformers")
    from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

    attn, x, out = layer(name="short_conv", width=4)
    config = transformers.Lfm2Config(hidden_size=36, conv_L_cache=4, full_attn_idxs=[])
    theirs = Lfm2ShortConv(config, 0).double()
    maps = [getattr(attn, name).weight for name in ("gate_in", "gate_out", "v")]
    theirs.load_state_dict(
        {
            "in_proj.weight": torch.cat(maps),
            "conv.weight": attn.conv.weight[:, None],
            "out_proj.weight": attn.o.weight,
        }
    )
    assert_close(out, theirs(x))


def test_its_cache_holds_the_last_inputs_of_the_convolution():
    attn, *_ = layer(name="short_conv", width=4)
    assert [tuple(tensor.shape) for tensor in attn.cache(5, 1000).tensors] == [(5, 3, 36)]


REFUSED = {
    "attn=short_conv attn.width=0 position=none": ("attn.width: must be at least 1 token; got 0."),
    "attn=short_conv": (
        "attn: 'short_conv' has no scores, into which position 'rotary' enters. Choose"
        " position=none, learned or sinusoidal."
    ),
    "attn=short_conv position=none mask=sliding_window mask.window=2": (
        "attn: 'short_conv' reads 2 tokens before each token and none after it, and mask"
        " 'sliding_window' hides some or shows more. Choose mask=causal."
    ),
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=short_conv": (
        "model.decoder.cross: 'short_conv' reads the tokens before each token, and a source has"
        " none. Choose model.decoder.cross.name=multi_head."
    ),
}


test_refused_configs = refusals(REFUSED)
