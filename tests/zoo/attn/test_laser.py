"""attn=laser: by equation, equal to x-transformers', and what is refused."""

import inspect

import torch
from refusing import refusals
from torch.testing import assert_close
from x_attention import HEAD_DIM, ours, peer, run, state_of, theirs, x

from xformer_kit.attention import ATTENTIONS
from xformer_kit.laws import LAWS, tiny


@torch.no_grad()
def test_the_layer_is_that_of_x_transformers():
    layer = theirs(laser=True, laser_softclamp_value=2.0)
    mine = ours("laser", cap=2.0)
    mine.load_state_dict(state_of(layer))
    assert_close(run(mine, x()), layer(x()), rtol=1e-5, atol=1e-6)  # their softmax is in float32


def test_the_default_bound_is_that_of_x_transformers():
    cap = inspect.signature(peer.Attention).parameters["laser_softclamp_value"]
    assert ATTENTIONS.defaults("laser")["cap"] == cap.default


def test_the_sum_is_finite_if_exponentials_are_not(monkeypatch):
    mine = ours("laser", cap=None).float()
    v = torch.tensor([[-200.0, 100.0], [300.0, 120.0], [250.0, -90.0]])[None, None]
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])[None, None]
    q = k = torch.zeros(1, 1, 3, HEAD_DIM)
    mine.kernel = lambda q, k, values, *rest: weights.double() @ values.double()
    got = mine.attend(q, k, v, None, None)[0, 0]
    exact = (weights.log()[0, 0, :, :, None].double() + v[0, 0, None].double()).logsumexp(1)
    assert got.isfinite().all()
    assert_close(got[1:], exact[1:], rtol=1e-6, atol=1e-4)
    assert_close(got[0, 1].item(), 100.0)
    mine.kernel = lambda q, k, values, *rest: torch.zeros_like(values)
    assert mine.attend(q, k, v, None, None).eq(0).all()  # rows that see nothing


def test_it_may_attend_to_a_source():
    attn = {"name": "laser", "v_norm": "head", "qk_norm": "key", "v_head_dim": 7}
    assert LAWS["greedy"](tiny("encoder_decoder", attn=attn, norm="layer")) is None


test_refused_configs = refusals(
    {
        "attn=laser attn.cap=0": "attn.cap: must be above 0; got 0. null is no bound.",
        "attn=laser attn.score=cog": (
            "attn: 'laser' takes the logarithm of a sum with weights, of which attn.score 'cog' may"
            " make some negative. Choose attn.score=softmax."
        ),
        "attn=laser attn.score={name:talking_heads,probabilities:false,scaled:true}": (
            "attn: 'laser' takes the logarithm of a sum with weights, of which attn.score"
            " 'talking_heads' may make some negative. Choose attn.score=softmax."
        ),
    }
)
