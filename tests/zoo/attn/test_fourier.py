"""attn fourier: equal to the published layer, under the laws, and refused where it cannot be."""

import os

import pytest
import torch
from refusing import refusals
from torch.testing import assert_close

from xformer_kit import compose
from xformer_kit.inspect.describe import describe
from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.laws.case import VOCAB, Case, randomise
from xformer_kit.model.build import build_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")

DRAWN = Case(tiny(), "").ids


def made(attn, model="encoder", **more):
    built = build_model(
        tiny(model, attn=attn, position=more.pop("position", "none"), **more), VOCAB
    )
    randomise(built)
    return built.double().eval()


def layer(attn, length=12, **more):
    """An attention of a randomised model, with what it reads and what it gives."""
    model, held = made(attn, **more), []
    stack = model.stack
    stack.blocks[0].attn.register_forward_hook(lambda _, args, out: held.extend((args[0], out)))
    model(DRAWN[:, :length])
    return stack.blocks[0].attn, *held


@torch.no_grad()
def test_fourier_is_that_of_fnet():
    transformers = pytest.importorskip("transformers")
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    _, x, out = layer("fourier")
    assert_close(out, FNetBasicFourierTransform(transformers.FNetConfig())(x)[0])


NODES = [
    {"name": "fourier"},
]

SAID = ["documents", "padding", "batch", "gradients", "precision", "kernels"]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_laws_of_an_encoder(node):
    config = tiny("encoder", attn=node, position="learned")
    assert not faults(config)
    for law in SAID:
        said = LAWS[law](config)
        assert said is None or "only `reference`" in said


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
        "kernel: 'sdpa' cannot: attn 'fourier' has no scores, which sdpa computes. Use kernel=auto"
        " or kernel=reference."
    ),
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=fourier": (
        "model.decoder.cross: fourier has no queries that could look at a source. Choose"
        " model.decoder.cross.name=multi_head."
    ),
}


test_refused_configs = refusals(REFUSED)


def test_what_runs_on_no_kernel_is_described_so():
    config = compose((ENCODER + "attn=fourier model.dim=32 model.layers=1 logger=none").split())
    (choice,) = describe(config, 65).kernels
    assert (choice.kernel, choice.why) == ("none", ("fourier computes in a way of its own",))
