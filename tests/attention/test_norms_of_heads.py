"""Norms of queries, keys and values (attn.qk_norm, attn.v_norm): equal to x-transformers', and what
is refused.
"""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close
from x_attention import HEAD_DIM, HEADS, ours, run, state_of, theirs, x

from xformer_kit import build
from xformer_kit.laws import tiny_config


def close(got, expected):
    assert_close(got, expected, rtol=1e-5, atol=1e-6)  # their softmax is in float32


def gammas(name, layer):
    return {f"{name}.{i}.weight": 1 + gamma[0] for i, gamma in enumerate(layer.gamma)}


def value_rmsnorm():
    layer = theirs(value_rmsnorm=True)
    return (
        layer,
        {"v_norm": "each_head"},
        gammas("v_norm", layer.value_rmsnorm),
    )


def k_rmsnorm():
    layer = theirs(k_rmsnorm=True)
    return layer, {"qk_norm": "key"}, gammas("k_norm", layer.k_rmsnorm)


def qk_norm_groups():
    layer = theirs(qk_norm=True, qk_norm_groups=2, qk_norm_scale=3.0)
    scale = 3.0 * 2 / HEAD_DIM**0.5  # ours is divided by what products of two groups are about
    state = {"q_norm.weight": torch.full((HEADS,), scale)}
    return layer, {"qk_norm": {"name": "l2", "groups": 2}}, state


PEERS = [value_rmsnorm, k_rmsnorm, qk_norm_groups]


@pytest.mark.parametrize("pair", PEERS, ids=lambda pair: pair.__name__)
@torch.no_grad()
def test_the_layer_is_that_of_x_transformers(pair):
    layer, options, state = pair()
    mine = ours(**options)
    mine.load_state_dict(state_of(layer) | state)
    close(run(mine, x()), layer(x()))


def test_groups_of_a_norm_with_weights_share_them():
    attn = (
        build(tiny_config(attn={"name": "multi_head", "qk_norm": {"name": "head", "groups": 5}}), 7)
        .decoder.blocks[0]
        .attn
    )
    assert attn.k_norm.norm.weight.shape == (2,)
    k = attn.k_norm(torch.randn(1, 3, 4, 10))
    assert_close(
        k.unflatten(-1, (5, 2)).square().mean(-1), torch.ones(1, 3, 4, 5), rtol=1e-3, atol=1e-3
    )


def test_norms_of_queries_and_keys_may_have_no_biases():
    def names(bias):
        attn = {"name": "multi_head", "qk_norm": {"name": "each_head", "bias": bias}}
        return {*build(tiny_config(attn=attn, norm="layer"), 7).state_dict()}

    lost = names(True) - names(False)
    assert names(False) < names(True)
    assert lost
    assert all(".attn." in name and "_norm." in name and name.endswith("bias") for name in lost)


REFUSED = {
    "attn.qk_norm.name=head attn.qk_norm.bias=false": (
        "attn.qk_norm.bias: leaves out the biases of norms, and norm 'rms' has none; got false."
        " Leave it out."
    ),
    "attn.qk_norm.name=l2 attn.qk_norm.bias=false norm=layer": (
        "attn.qk_norm.bias: leaves out the biases of norms, and qk_norm 'l2' has none; got false."
        " Leave it out."
    ),
    "attn.v_norm=head norm=none": (
        "attn.v_norm: takes the norm of model.decoder, and 'none' does nothing; got 'head'. Choose"
        " norm=rms or norm=layer there, or attn.v_norm=none."
    ),
    "attn.qk_norm.name=head attn.qk_norm.groups=0": (
        "attn.qk_norm.groups: must be at least 1 group; got 0."
    ),
    "attn.qk_norm.name=projection attn.qk_norm.groups=24 attn.head_dim=32 attn.kv_heads=2": (
        "attn.qk_norm.groups: must divide the channels of all key heads into groups of at least 2;"
        " got 24 and 64 channels. Try 4, 8, 16 or 32."
    ),
    "attn.qk_norm.name=head attn.qk_norm.groups=7 attn.head_dim=32": (
        "attn.qk_norm.groups: must divide the channels of a head into groups of at least 2; got 7"
        " and 32 channels. Try 1, 2, 4 or 8."
    ),
}


test_refused_configs = refusals(REFUSED)
