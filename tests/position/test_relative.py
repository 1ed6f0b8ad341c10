"""Biases by distance: the published code's numbers, or the paper's equation written out."""

import math
import os

import pytest
import torch

from tests.messages import messages
from tests.positions import bias, random_position
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")


def causal_weights(scores: torch.Tensor) -> torch.Tensor:
    """Causal softmax of scores: a constant added to a row does not change it."""
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.double().masked_fill(hidden, -math.inf).softmax(-1)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 20])
def test_alibi_is_that_of_bloom_and_of_mpt(heads, symmetric):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    bloom = (
        build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
        .view(heads, 1, 9)
        .expand(-1, 9, -1)
    )
    press = random_position({"name": "alibi", "symmetric": symmetric}, heads)
    torch.testing.assert_close(causal_weights(bias(press, 9, heads)), causal_weights(bloom))
    theirs = build_mpt_alibi_tensor(heads, 9, alibi_bias_max=6).view(heads, 1, 9).expand(-1, 9, -1)
    mpt = random_position({"name": "alibi", "symmetric": symmetric, "exponent": 6.0}, heads)
    torch.testing.assert_close(causal_weights(bias(mpt, 9, heads)), causal_weights(theirs))


def test_geometric_slopes_have_one_ratio():
    """Six heads: 2^(-8/6), 2^(-16/6), ...; of a power of two they are the usual ones."""
    slope = POSITIONS.create({"name": "alibi", "slopes": "geometric"}, heads=6).slope.double()
    torch.testing.assert_close(
        slope[1:] / slope[:-1], torch.full((5,), 2 ** (-8 / 6), dtype=torch.float64)
    )
    assert slope[-1] == 2**-8
    usual, geometric = (
        POSITIONS.create({"name": "alibi", "slopes": s}, heads=8).slope
        for s in ("press", "geometric")
    )
    assert torch.equal(usual, geometric)


def test_alibi_worked_out():
    assert bias(random_position({"name": "alibi"}, 1), 3, 1)[0].mul(256).tolist() == [
        [0, -1, -2],
        [-1, 0, -1],
        [-2, -1, 0],
    ]
    causal = bias(random_position({"name": "alibi", "symmetric": False}, 1), 3, 1)[0]
    assert causal.mul(256).tolist() == [[0, 0, 0], [-1, 0, 0], [-2, -1, 0]]
    half = bias(random_position({"name": "alibi", "factor": 0.5}, 1), 3, 1)[0]
    assert half.mul(512).tolist() == [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (32, 20), (6, 9), (64, 1000)])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_t5_buckets_are_those_of_transformers(stack, buckets, longest):
    from transformers.models.t5.modeling_t5 import T5Attention

    place = random_position({"name": "t5", "buckets": buckets, "longest": longest}, stack=stack)
    distance = torch.arange(-1500, 1500)
    expected = T5Attention._relative_position_bucket(
        -distance, stack == "encoder", buckets, longest
    )
    assert torch.equal(place.bucket(distance), expected)
    assert torch.equal(bias(place, 7)[2, 5], place.weight[place.bucket(5 - torch.arange(7)), 2])


def test_t5_buckets_worked_out():
    """8 buckets up to 16 tokens: 0 to 3 exactly, then 4-5, 6-7, 8-11, 12 and more; in an encoder 4
    for each direction.
    """
    past = random_position({"name": "t5", "buckets": 8, "longest": 16})
    assert past.bucket(torch.arange(-2, 14)).tolist() == [
        0,
        0,
        0,
        1,
        2,
        3,
        4,
        4,
        5,
        5,
        6,
        6,
        6,
        6,
        7,
        7,
    ]
    both = random_position({"name": "t5", "buckets": 8, "longest": 16, "bidirectional": True})
    assert both.bucket(torch.tensor([-9, -1, 0, 1, 9])).tolist() == [7, 5, 0, 1, 3]


def test_a_table_is_the_stack_or_each_layers():
    for node, names in (
        ({"per_layer": False}, {"base"}),
        ({"per_layer": True}, {"layer_0", "layer_1", "layer_2"}),
    ):
        config = tiny_config(position={"name": "t5", "buckets": 8, **node}, layers=3)
        model = Composition(config, "").model()
        assert set(model.decoder.position) == names
        assert [block.attention_group_of["attn"] for block in model.decoder.blocks] == (
            [0, 0, 0] if len(names) == 1 else [0, 1, 2]
        )
    two = {"layout": ["attn", {"attn": {"position": {"buckets": 6}}}, "attn", "ffn"]}
    model = Composition(
        tiny_config(position={"name": "t5", "buckets": 8, "per_layer": True}, decoder=two), ""
    ).model()
    assert set(model.decoder.position) == {"layer_0", "layer_0_2", "layer_1", "layer_1_2"}


def test_rotary_and_none_mix_in_a_stack():
    pattern = {"pattern": ["base", "base", "bare"], "variants": {"bare": {"position": "none"}}}
    model = Composition(tiny_config(position="rotary", layers=6, decoder=pattern), "").model()
    places = [
        model.decoder.attention_groups[block.attention_group_of["attn"]].position
        for block in model.decoder.blocks
    ]
    assert places == ["base", "base", "other_1"] * 2
    assert {name: type(place).__name__ for name, place in model.decoder.position.items()} == {
        "base": "Rotary",
        "other_1": "NoPosition",
    }


@torch.no_grad()
def test_learned_positions_begin_at_the_offset_and_count_real_tokens():
    model = Composition(tiny_config(position={"name": "learned", "offset": 2}), "").model()
    place = model.decoder.position["base"]
    assert place.weight.shape == (29 + 2, 36)
    tokens = Tokens(
        ids=torch.zeros(1, 5, dtype=torch.long),
        real=torch.tensor([[False, False, True, True, True]]),
    )
    got = place.embed(torch.zeros(1, 5, 36, dtype=torch.float64), tokens.with_positions())
    assert torch.equal(got[0, 2:], place.weight[2:5])


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            {"name": "t5", "longest": 16},
            "position.longest: must be above 16; got 16. That is half the buckets.",
        ),
        ({"name": "t5", "buckets": 3}, "position.buckets: must be at least 4 buckets; got 3."),
        ({"name": "alibi", "exponent": 0}, "position.exponent: must be above 0; got 0."),
        ({"name": "alibi", "factor": 0}, "position.factor: must be above 0; got 0."),
        ({"name": "learned", "offset": -1}, "position.offset: must be at least 0 row; got -1."),
    ],
)
def test_a_distance_that_cannot_be_is_refused(node, sentence):
    assert messages(faults(tiny_config(position=node))) == [sentence]
