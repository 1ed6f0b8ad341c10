"""attn nystrom: equal to the published layer, under the laws, and refused where it cannot be."""

import os

import pytest
import torch
from refusals import refusals
from torch import nn
from torch.testing import assert_close

from tests.attentions import DRAWN, encoder_layer, model_of
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.zoo.attn.nystrom import inverse

os.environ.setdefault("HF_HUB_OFFLINE", "1")

DIM = 36


@torch.no_grad()
@pytest.mark.parametrize("conv", [None, 5])
@pytest.mark.parametrize("landmarks", [1, 3, 6])
def test_nystrom_is_that_of_nystromformer(landmarks, conv):
    transformers = pytest.importorskip("transformers")
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    node = {
        "name": "nystrom",
        "heads": 6,
        "head_dim": 6,
        "landmarks": landmarks,
        "conv": conv,
        "bias": True,
    }
    attn, x, out = encoder_layer(node)
    config = transformers.NystromformerConfig(
        hidden_size=DIM,
        num_attention_heads=6,
        num_landmarks=landmarks,
        segment_means_seq_len=12,
        conv_kernel_size=conv or 65,
    )
    theirs = NystromformerSelfAttention(config)
    theirs.init_option, theirs.conv_kernel_size = "exact", conv
    for ours, name in (("q", "query"), ("k", "key"), ("v", "value")):
        setattr(theirs, name, getattr(attn, ours))
    if conv:
        theirs.conv.weight = nn.Parameter(attn.filter[:, None, :, None])
    assert_close(out, attn.o(theirs.double()(x)[0]))


@torch.no_grad()
def test_nystrom_with_a_landmark_for_each_token_comes_near_multi_head():
    """K pinv(K) K = K, and more iterations find a better pseudo-inverse."""
    sizes = {"heads": 6, "head_dim": 10}
    multi, off = (
        model_of({"name": "multi_head", "kv_heads": 6, **sizes}, "encoder", position="none"),
        [],
    )
    for iterations in (4, 12, 25):
        ours = model_of(
            {"name": "nystrom", "landmarks": 64, "iterations": iterations, **sizes},
            "encoder",
            position="none",
        )
        ours.load_state_dict(multi.state_dict())
        off.append((ours(DRAWN) - multi(DRAWN)).abs().max().item())
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-6


def test_a_filter_of_nystrom_starts_as_torch_draws_convolutions():
    """Uniform in +- 1 / sqrt(tokens), with values of either sign."""
    built = build_model(
        tiny_config("encoder", attn={"name": "nystrom", "landmarks": 4, "conv": 9}), VOCAB
    )
    values = torch.cat([block.attn.filter.flatten() for block in built.stack.blocks])
    assert -1 / 3 < values.min() < -0.2
    assert 0.2 < values.max() < 1 / 3


def test_the_pseudo_inverse_of_matrices_with_empty_rows():
    a = torch.rand(2, 3, 5, 5, dtype=torch.float64).add(3 * torch.eye(5)).softmax(-1)
    a[0, :, 3:], a[0, :, :, 3:] = 0, 0
    assert_close(inverse(a, 20), torch.linalg.pinv(a), rtol=1e-6, atol=1e-6)
    assert inverse(a.bfloat16(), 6).dtype == torch.float32


ENCODER = "model=encoder task=masked_language_modeling position=learned "

REFUSED = {
    "attn=nystrom": (
        "attn: nystrom mixes all tokens of a text, and mask 'causal' hides some. Choose"
        " task=masked_language_modeling mask=full."
    ),
    ENCODER + "attn=nystrom attn.conv=2 attn.landmarks=0": (
        "attn.landmarks: must be at least 1; got 0.\n"
        "attn.conv: must be odd, with as many tokens before as after; got 2. Try 3."
    ),
    ENCODER + "attn=nystrom attn.conv=0": "attn.conv: must be at least 1 token; got 0.",
    "model=encoder_decoder task=seq2seq model.decoder.cross.name=nystrom": (
        "model.decoder.cross: nystrom computes means over all queries, also later ones, which a"
        " decoder must not see. Choose model.decoder.cross.name=multi_head."
    ),
}


test_refused_configs = refusals(REFUSED)
