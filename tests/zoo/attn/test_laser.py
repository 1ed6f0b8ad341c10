"""attn=laser: by equation, equal to x-transformers', and what is refused."""

import inspect

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close
from x_attention import HEAD_DIM, HEADS, ours, peer, run, state_of, theirs, x

from xformer_kit import ConfigError, compose
from xformer_kit.attention import ATTENTIONS
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import VOCAB, Composition


@torch.no_grad()
def test_the_layer_is_that_of_x_transformers():
    layer = theirs(laser=True, laser_softclamp_value=2.0)
    mine = ours("laser", cap=2.0)
    mine.load_state_dict(state_of(layer))
    assert_close(run(mine, x()), layer(x()), rtol=1e-5, atol=1e-6)  # their softmax is in float32


def test_the_default_bound_is_that_of_x_transformers():
    cap = inspect.signature(peer.Attention).parameters["laser_softclamp_value"]
    assert ATTENTIONS.defaults("laser")["cap"] == cap.default


@pytest.mark.parametrize("cap", [2.0, 15.0, 40.0])
def test_the_sum_is_that_of_bounded_values(cap):
    mine = ours("laser", cap=cap).float()
    v = torch.tensor([[-200.0, 100.0], [300.0, 120.0], [250.0, -90.0]])[None, None]
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])[None, None]
    q = k = torch.zeros(1, 1, 3, HEAD_DIM)
    mine.kernel = lambda q, k, values, *rest: weights @ values
    got = mine.attend(q, k, v, None, None)[0, 0]
    bounded = cap * (v[0, 0].double() / cap).tanh()
    exact = (weights.log()[0, 0, :, :, None].double() + bounded).logsumexp(1)
    assert_close(got.double(), exact, rtol=1e-6, atol=1e-4)
    mine.kernel = lambda q, k, values, *rest: torch.zeros_like(values)
    assert mine.attend(q, k, v, None, None).eq(0).all()  # rows that see nothing


@torch.no_grad()
def test_later_tokens_with_large_values_do_not_change_earlier_ones():
    case = Composition(tiny_config(attn={"name": "laser", "cap": 40.0}), "")
    model, ids = case.model(), case.ids.clone()
    for block in model.decoder.blocks:
        block.attn.v.weight.mul_(300)
    before = model.float()(ids)
    ids[:, -3:] = (ids[:, -3:] + 1) % VOCAB
    assert_close(model(ids)[:, :-3], before[:, :-3], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_bound_that_fp16_cannot_hold_is_refused():
    v = torch.zeros(1, HEADS, 2, HEAD_DIM, dtype=torch.float16)
    with pytest.raises(ConfigError, match="cap: must be at most 8 in fp16; got 15"):
        ours("laser").attend(None, None, v, None, None)


def test_a_bound_that_fp16_can_hold_is_composed():
    compose(["attn=laser", "attn.cap=8", "trainer.precision=16-true"])


def test_it_may_attend_to_a_source():
    attn = {"name": "laser", "v_norm": "head", "qk_norm": "key", "v_head_dim": 7}
    assert LAWS["greedy"](tiny_config("encoder_decoder", attn=attn, norm="layer")) is None


test_refused_configs = refusals(
    {
        "attn=laser attn.cap=0": "attn.cap: must be above 0; got 0.",
        "attn=laser attn.cap=41": "attn.cap: must be at most 40; got 41. Try 15.",
        "attn=laser trainer.precision=16-mixed": (
            "attn.cap: must be at most 8 with trainer.precision=16-mixed; got 15.0. Or set"
            " trainer.precision=bf16-mixed."
        ),
        "model.decoder.attn={name:laser,cap:9} trainer.precision=16-true": (
            "model.decoder.attn.cap: must be at most 8 with trainer.precision=16-true; got 9. Or"
            " set trainer.precision=bf16-mixed."
        ),
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
