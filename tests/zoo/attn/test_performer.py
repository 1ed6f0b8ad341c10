"""attn performer: its features, and refused where it cannot be."""

import math

import pytest
import torch
from refusals import refusals_among
from torch.testing import assert_close

from tests.attentions import IDS, heads, layer
from tests.messages import messages
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.zoo.attn.performer import default_features, orthogonal, running_max


@torch.no_grad()
def test_performer_comes_to_softmax_attention_as_features_grow():
    def gap(features):
        attn, x, out = layer(name="performer", features=features)
        q, k, v = heads(attn, x, "qkv")
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(10)
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        y = torch.einsum("bhij,bjhe->bihe", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
        return (out - y.flatten(2) @ attn.o.weight.t()).square().mean().sqrt().item()

    few, many = gap(16), gap(16384)
    assert many < few / 6  # a thirty-second, but for chance, and while few are not enough


def test_random_features_are_orthogonal_and_as_long_as_normal_draws():
    rows = orthogonal(40, 10, torch.Generator().manual_seed(0))
    for group in rows.split(10):
        products = group @ group.t()
        assert_close(products, products.diag().diag(), rtol=0, atol=1e-9)
    assert rows.square().sum(-1).mean().item() == pytest.approx(10, rel=0.25)
    assert not torch.equal(rows[:10], rows[10:20])
    many = orthogonal(2000, 10, torch.Generator().manual_seed(0)).unflatten(0, (-1, 10))
    assert (
        many.mean(0).abs().max() < 0.35
    )  # 5 standard deviations: no direction is rarer, as some would be with QR only


def test_the_largest_so_far_begins_anew_in_each_segment():
    x = torch.tensor([[[-torch.inf, 2.0, 9.0, -torch.inf, 1.0, 0.0, 3.0]]])
    assert running_max(x, None).flatten()[2:].tolist() == [9.0] * 5
    segment = torch.tensor([[0, 0, 0, 1, 1, 1]])
    assert running_max(x, segment).flatten()[1:].tolist() == [2.0, 9.0, 9.0, 1.0, 1.0, 3.0]


@torch.no_grad()
def test_features_that_are_far_apart_do_not_overflow():
    """exp(900) is no number of fp32; what is relative to the largest is."""
    made = build_model(tiny_config(attn="performer"), VOCAB).eval()
    for block in made.decoder.blocks:
        block.attn.k.weight.normal_(0, 6, generator=torch.Generator().manual_seed(0))
    assert made(IDS).isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("stack", ["decoder", "encoder"])
@pytest.mark.parametrize("larger", [4.0, 32.0, 512.0])
def test_without_a_rotation_it_is_a_mean_of_values_for_queries_and_keys_of_any_size(larger, stack):
    mask = {"decoder": "causal", "encoder": "full"}[stack]
    config = tiny_config(stack, layers=1, attn="performer", mask=mask, position="none")
    model = build_model(config, VOCAB)
    attn = model.get_submodule(stack).blocks[0].attn
    values = []
    attn.v.register_forward_hook(lambda module, args, out: values.append(out))
    attn.o.register_forward_pre_hook(lambda module, args: values.append(*args))
    attn.q.weight *= larger
    attn.k.weight *= larger
    model.half()(IDS)
    v, out = values
    assert out.isfinite().all()
    assert (out <= v.amax(1, keepdim=True).clamp(min=0) * 1.01).all()
    assert (out >= v.amin(1, keepdim=True).clamp(max=0) * 1.01).all()


ALIBI = (
    "attn: attn 'linear' reads a sum over the past and forms no scores, which position 'alibi'"
    " changes one by one. Choose position=rotary, learned, sinusoidal or none."
)

REFUSED = [
    (
        ["attn=performer", "mask=sliding_window"],
        [
            "attn: attn 'performer' reads one sum over the whole past, of which mask"
            " 'sliding_window' hides some or shows more. Choose mask=causal."
        ],
    ),
    (
        ["attn=performer", "attn.features=7", "position=xpos"],
        [
            "position: xpos turns pairs of channels, so attn.features must be even; got 7. Try"
            " attn.features=8, or position=none."
        ],
    ),
]


test_refused_configs = refusals_among(REFUSED)


def test_of_an_odd_number_of_features_some_turn():
    config = tiny_config(
        attn={"name": "performer", "heads": 2, "features": 7},
        position={"name": "rotary", "fraction": 0.4},
    )
    assert messages(faults(config)) == []
    for law in ("causality", "cache with padding", "shift"):
        assert LAWS[law](config) is None


def test_random_features_are_the_same_whatever_device_a_model_is_built_on():
    here = orthogonal(5, 3, torch.Generator().manual_seed(2))
    with torch.device("meta"):
        there = orthogonal(5, 3, torch.Generator().manual_seed(2))
    assert torch.equal(here, there)


def test_a_head_of_one_channel_has_features_all_the_same():
    assert default_features(1) == 2
