"""attn fourier: equal to the published layer, under the laws, and refused where it cannot be."""

import os

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import encoder_layer
from xformer_kit import compose
from xformer_kit.inspect.describe import describe

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@torch.no_grad()
def test_fourier_is_that_of_fnet():
    transformers = pytest.importorskip("transformers")
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    _, x, out = encoder_layer("fourier")
    assert_close(out, FNetBasicFourierTransform(transformers.FNetConfig())(x)[0])


ENCODER = "model=encoder task=masked_language_modeling position=learned "

REFUSED = {
    "attn=fourier": (
        "attn: fourier mixes all tokens of a text, and mask 'causal' hides some; fourier has no"
        " score of two tokens, into which position 'rotary' enters. Choose"
        " task=masked_language_modeling mask=full position=learned."
    ),
    "attn=fourier position=none": (
        "attn: fourier mixes all tokens of a text, and mask 'causal' hides some. Choose"
        " task=masked_language_modeling mask=full."
    ),
    ENCODER + "attn=fourier kernel=sdpa": (
        "kernel: 'sdpa' cannot: attn 'fourier' has no scores that sdpa could compute. Use"
        " kernel=auto or kernel=reference."
    ),
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=fourier": (
        "model.decoder.cross: fourier has no queries, which cross attention needs. Choose"
        " model.decoder.cross.name=multi_head."
    ),
}


test_refused_configs = refusals(REFUSED)


def test_what_runs_on_no_kernel_is_described_so():
    config = compose((ENCODER + "attn=fourier model.dim=32 model.layers=1 logger=none").split())
    (choice,) = describe(config, 65).kernels
    assert (choice.kernel, choice.why) == ("none", ("fourier computes without one of the kernels",))
