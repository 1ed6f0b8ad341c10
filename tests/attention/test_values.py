"""attn.values, the mixing in of first values and what norms are over: by equation, beside
x-transformers, and under laws.
"""

import inspect

import pytest
import torch
from refusing import refusals
from torch.testing import assert_close
from x_attention import HEAD_DIM, HEADS, LENGTH, ours, peer, run, state_of, theirs, x

from tests.messages import messages
from xformer_kit import build
from xformer_kit.attention.values import VALUES
from xformer_kit.laws import LAWS, faults, tiny


def close(got, expected):
    assert_close(got, expected, rtol=1e-5, atol=1e-6)  # their softmax is in float32


def laser():
    return (
        theirs(laser=True, laser_softclamp_value=2.0),
        {"values": {"name": "laser", "cap": 2.0}},
        {},
    )


def gammas(name, layer):
    return {f"{name}.{i}.weight": 1 + gamma[0] for i, gamma in enumerate(layer.gamma)}


def value_rmsnorm():
    layer = theirs(value_rmsnorm=True)
    return (
        layer,
        {"values": {"name": "plain", "norm_over": "each_head"}},
        gammas("values.norm", layer.value_rmsnorm),
    )


def k_rmsnorm():
    layer = theirs(k_rmsnorm=True)
    return layer, {"qk_norm": "key"}, gammas("k_norm", layer.k_rmsnorm)


def qk_norm_groups():
    layer = theirs(qk_norm=True, qk_norm_groups=2, qk_norm_scale=3.0)
    scale = 3.0 * 2 / HEAD_DIM**0.5  # ours is divided by what products of two groups are about
    state = {"q_norm.weight": torch.full((HEADS,), scale)}
    return layer, {"qk_norm": {"name": "l2", "groups": 2}}, state


PEERS = [laser, value_rmsnorm, k_rmsnorm, qk_norm_groups]


@pytest.mark.parametrize("pair", PEERS, ids=lambda pair: pair.__name__)
@torch.no_grad()
def test_the_layer_is_that_of_x_transformers(pair):
    layer, options, state = pair()
    mine = ours(**options)
    mine.load_state_dict(state_of(layer) | state)
    close(run(mine, x()), layer(x()))


@torch.no_grad()
def test_a_mix_of_first_values_made_of_the_token_is_that_of_x_transformers():
    layer = theirs(learned_value_residual_mix=True)
    mine, first = (
        ours(values={"name": "plain", "residual": "token"}),
        torch.randn(2, HEADS, LENGTH, HEAD_DIM).double(),
    )
    there = layer.to_value_residual_mix[0]
    mine.load_state_dict(
        state_of(layer) | {"values.mix.weight": there.weight, "values.mix.bias": there.bias}
    )
    memo = {f"values {(HEADS, HEAD_DIM)} ": first}
    close(run(mine, x(), memo), layer(x(), value_residual=first))
    assert ours(values={"name": "plain", "residual": "token"}, depth=0).values.mix is None


@torch.no_grad()
def test_default_bound_of_laser_is_that_of_x_transformers():
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    cap = inspect.signature(x_transformers.Attention).parameters["laser_softclamp_value"]
    assert VALUES.defaults("laser")["cap"] == cap.default


def test_laser_is_finite_where_exponentials_are_not():
    mine = ours(values={"name": "laser", "cap": None}).float()
    v = torch.tensor([[-200.0, 100.0], [300.0, 120.0], [250.0, -90.0]])[None, None]
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])[None, None]
    got = mine.values(lambda values: weights.double() @ values.double(), v, v)[0, 0]
    exact = (weights.log()[0, 0, :, :, None].double() + v[0, 0, None].double()).logsumexp(1)
    assert got.isfinite().all()
    assert_close(got[1:], exact[1:], rtol=1e-6, atol=1e-4)
    assert_close(got[0, 1].item(), 100.0)
    assert mine.values(torch.zeros_like, v, v).eq(0).all()  # rows that see nothing


@torch.no_grad()
def test_what_is_gathered_is_orthogonal_to_the_own_value():
    own, out = torch.randn(2, 3, 5, 7).double(), torch.randn(2, 6, 5, 7).double()
    for over, axes in (("head", 3), ("all", (1, 3))):
        values = ours(values={"name": "orthogonal", "over": over}).values
        got = values(lambda v: out, own, own)
        every = own.repeat_interleave(2, 1)
        assert (got * every).sum(axes).abs().max() < 1e-12
        # Their layer takes one direction of a whole text, so that later tokens change earlier ones;
        # its function takes rows.
        rows = [
            t.transpose(1, 2).reshape(10, 42) if over == "all" else t.transpose(1, 2).reshape(60, 7)
            for t in (out, every)
        ]
        assert_close(got.transpose(1, 2).reshape(rows[0].shape), peer.orthog_project(*rows))


def test_groups_of_a_norm_with_weights_share_them():
    attn = (
        build(tiny(attn={"name": "multi_head", "qk_norm": {"name": "head", "groups": 5}}), 7)
        .decoder.blocks[0]
        .attn
    )
    assert attn.k_norm.norm.weight.shape == (2,)
    k = attn.k_norm(torch.randn(1, 3, 4, 10))
    assert_close(
        k.unflatten(-1, (5, 2)).square().mean(-1), torch.ones(1, 3, 4, 5), rtol=1e-3, atol=1e-3
    )


FACES = [
    {
        "values": {"name": "laser", "norm_over": "head", "residual": "token"},
        "qk_norm": "key",
        "v_head_dim": 7,
    },
    {
        "values": {"name": "orthogonal", "over": "all", "residual": "token"},
        "qk_norm": {"name": "l2", "groups": 2},
    },
]


@pytest.mark.parametrize("face", FACES, ids=["laser", "orthogonal"])
@pytest.mark.parametrize(
    "law", ["cache", "cache with padding", "kernels", "kernels in bf16", "gradients", "documents"]
)
def test_laws(law, face):
    assert LAWS[law](tiny(attn={"name": "multi_head", **face}, norm="layer")) is None


def test_laser_may_attend_to_a_source():
    assert LAWS["greedy"](tiny("encoder_decoder", attn={"name": "multi_head", **FACES[0]})) is None


def test_the_own_value_of_a_cross_attention_is_left_out_by_its_own_words():
    orthogonal = {"name": "multi_head", "values": "orthogonal"}
    assert (
        messages(
            faults(tiny("encoder_decoder", attn=orthogonal, decoder={"cross": {"values": "plain"}}))
        )
        == []
    )
    assert (
        LAWS["greedy"](
            tiny("encoder_decoder", attn=orthogonal, decoder={"cross": {"values": "plain"}})
        )
        is None
    )


REFUSED = {
    "attn.values=lasar": (
        "attn.values: no value is called 'lasar'. Did you mean 'laser'? Known: laser, orthogonal,"
        " plain."
    ),
    "attn.values.name=laser attn.values.cap=0": (
        "attn.values.cap: must be above 0; got 0. null is no bound."
    ),
    "attn.values=laser attn.score=cog": (
        "attn.values: 'laser' takes the logarithm of a sum with weights, of which attn.score 'cog'"
        " may make some negative. Choose attn.values=plain, or attn.score=softmax."
    ),
    "attn.values=laser attn.score={name:talking_heads,probabilities:false,scaled:true}": (
        "attn.values: 'laser' takes the logarithm of a sum with weights, of which attn.score"
        " 'talking_heads' may make some negative. Choose attn.values=plain, or attn.score=softmax."
    ),
    "model=encoder_decoder task=seq2seq attn.values=orthogonal": (
        "attn.values: 'orthogonal' takes the direction of a token's own value away, and a token"
        " that looks at another stack has no value there. Set model.decoder.cross.values=plain."
    ),
    "attn.values.norm_over=head norm=none": (
        "attn.values.norm_over: takes the norm of model.decoder, and 'none' does nothing. Choose"
        " norm=rms or norm=layer there, or attn.values.norm_over=none."
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
