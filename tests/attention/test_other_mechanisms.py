"""attn differential, mean and dot: each by its equation, and the configs that are refused."""

import math

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import HIDDEN, layer, weights
from xformer_kit import compose
from xformer_kit.attention import ATTENTIONS
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB, Composition
from xformer_kit.model.build import build_model


@pytest.mark.parametrize("depth", [0, 1])
@torch.no_grad()
def test_differential(depth):
    attn, x, out = layer(depth, name="differential", heads=6, kv_heads=3, head_dim=5)
    start = 0.8 - 0.6 * math.exp(-0.3 * depth)
    a, b = attn.lambda_q, attn.lambda_k
    mix = torch.exp((a[0] * b[0]).sum()) - torch.exp((a[1] * b[1]).sum()) + start
    q, k, v = (x @ getattr(attn, name).weight.t() for name in "qkv")
    heads = []
    for i in range(6):
        q1, q2 = q[..., 10 * i : 10 * i + 5], q[..., 10 * i + 5 : 10 * i + 10]
        j = i // 2
        k1, k2 = k[..., 10 * j : 10 * j + 5], k[..., 10 * j + 5 : 10 * j + 10]
        head = (weights(q1, k1, 5**-0.5) - mix * weights(q2, k2, 5**-0.5)) @ v[
            ..., 10 * j : 10 * j + 10
        ]
        heads.append(head / (head.square().mean(-1, keepdim=True) + 1e-5).sqrt() * attn.weight)
    assert_close(out, (1 - start) * torch.cat(heads, -1) @ attn.o.weight.t())


@torch.no_grad()
def test_mean_is_the_mean_of_visible_tokens():
    attn, x, out = layer(name="mean")
    assert_close(out, x.cumsum(1) / torch.arange(1, LENGTH + 1)[:, None])
    assert not list(attn.parameters())
    config = tiny_config(attn="mean", position="alibi")
    assert not faults(config)


@torch.no_grad()
def test_a_bias_makes_a_weighted_mean():
    _, x, out = layer(name="mean", position="alibi")
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    expected = (-(2.0**-8) * distance).double().masked_fill(HIDDEN, -torch.inf).softmax(-1) @ x
    assert_close(out, expected)


@torch.no_grad()
def test_dot():
    _, x, out = layer(name="dot")
    assert_close(out, weights(x, x, 36**-0.5) @ x)
    _, x, out = layer(name="dot", scale=0.5)
    assert_close(out, weights(x, x, 0.5) @ x)


@torch.no_grad()
def test_differential_is_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    from xformer_kit.attention import Differential
    from xformer_kit.kernel import Reference
    from xformer_kit.mask import Causal
    from xformer_kit.position import POSITIONS
    from xformer_kit.tensors.tokens import AttentionContext, Tokens

    config = transformers.DiffLlamaConfig(
        hidden_size=36,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=10,
        attn_implementation="eager",
    )
    theirs = DiffLlamaAttention(config, 2)
    theirs.o_proj = torch.nn.Linear(80, 36, bias=False)
    torch.manual_seed(1)
    for p in theirs.parameters():
        p.copy_(torch.randn(p.shape) * (p.shape[-1] ** -0.5 if p.ndim > 1 else 0.3))
    theirs.double()
    x = torch.randn(2, LENGTH, 36).double()
    angle = torch.arange(LENGTH)[:, None] * 100.0 ** -(torch.arange(0, 10, 2) / 10)
    table = torch.cat([angle, angle], -1)[None]
    mask = torch.zeros(LENGTH, LENGTH).double().masked_fill(HIDDEN, -torch.inf)[None, None]
    expected = theirs(x, (table.cos(), table.sin()), mask)[0]

    ours, kernel = (
        Differential(
            36,
            2,
            Reference(),
            heads=4,
            kv_heads=2,
            head_dim=10,
            eps=config.rms_norm_eps,
            weight=False,
        ),
        Reference(),
    )

    def paired(
        weight, heads
    ):  # theirs: the first of all heads, then the second of all; ours: head by head
        return weight.unflatten(0, (2, heads, 10)).transpose(0, 1).flatten(0, 2)

    ours.load_state_dict(
        {
            "q.weight": paired(theirs.q_proj.weight, 4),
            "k.weight": paired(theirs.k_proj.weight, 2),
            "v.weight": paired(theirs.v_proj.weight, 2),
            "o.weight": theirs.o_proj.weight,
            "lambda_q": torch.stack([theirs.lambda_q1, theirs.lambda_q2]),
            "lambda_k": torch.stack([theirs.lambda_k1, theirs.lambda_k2]),
        }
    )
    tokens = Tokens(ids=torch.zeros(2, LENGTH, dtype=torch.long)).with_positions()
    place = POSITIONS.create({"name": "rotary", "theta": 100.0}, head_dim=10, max_len=64)
    context = AttentionContext(tokens, tokens, Causal(), place.prepare(tokens, tokens))
    context = context._replace(prepared=kernel.prepare(context, 4, False, torch.float64))
    assert_close(ours.double()(x, None, context), expected, rtol=1e-5, atol=1e-6)


def test_the_dimension_of_a_head_is_half_of_that_of_multi_head():
    model = build_model(compose_small("attn=differential", "attn.heads=4"), 17)
    attn = model.decoder.blocks[0].attn
    assert attn.head_dim == 8
    other = build_model(compose_small("attn=multi_head", "attn.heads=8"), 17).decoder.blocks[0].attn
    assert attn.q.weight.shape == other.q.weight.shape
    assert attn.v.weight.shape == other.v.weight.shape


def compose_small(*words):
    return compose(["model.dim=64", "model.layers=1", "data.seq_len=16", *words])


REFUSED = {
    "attn=differential attn.heads=3 model.dim=33": (
        "attn.heads: twice as many must divide model.dim, for a head has two queries; got 3 and 33."
        " Set attn.head_dim, or choose other heads."
    ),
    "attn=mean position=rotary": (
        "attn: mean has no queries and keys, with which position 'rotary' works. Choose"
        " position=learned, alibi or none."
    ),
    "attn=mean position=learned model=encoder_decoder task=seq2seq": (
        "model.decoder.cross: mean does not depend on the queries, so that across two stacks the"
        " norm before it would have no gradient. Name another attention in model.decoder.cross,"
        " e.g. {name: multi_head}."
    ),
    "attn=dot attn.scale=0": "attn.scale: must be above 0; got 0. null is dim^-0.5.",
}


test_refused_configs = refusals(REFUSED)


def test_the_layer_has_the_tested_options():
    assert Composition(tiny_config(attn="dot"), "").attention_contexts[0].attn.head_dim == 36


@pytest.mark.parametrize(
    "name", [name for name in ATTENTIONS if "bias" in ATTENTIONS.options(name)]
)
def test_projections_have_biases_only_if_bias_is_true(name):
    for bias in (False, True):
        attn = (
            build_model(
                tiny_config("encoder", attn={"name": name, "bias": bias}, position="none"), VOCAB
            )
            .stack.blocks[0]
            .attn
        )
        having = {
            where
            for where, component in attn.named_modules()
            if getattr(component, "bias", None) is not None
        }
        assert having.isdisjoint("qkvo") if not bias else {"o"} <= having
