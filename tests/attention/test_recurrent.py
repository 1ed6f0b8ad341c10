"""attn linear, retention, gated_delta and performer: each by its equation, token by token, and what
they refuse.
"""

import math

import pytest
import torch
from refusals import refusals_among
from torch.testing import assert_close

from tests.attentions import IDS, heads, layer, model_of
from tests.messages import messages
from xformer_kit import ConfigError
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB, randomise
from xformer_kit.model.build import build_model
from xformer_kit.tensors.short_conv import ShortConvolution
from xformer_kit.tensors.tokens import Tokens

KINDS = ("linear", "retention", "gated_delta", "performer")


FEATURES = {
    "elu": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": lambda x: x.clamp(min=0),
    "softmax": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
}


@pytest.mark.parametrize("name", FEATURES)
@torch.no_grad()
def test_linear_is_a_mean_weighted_by_products_of_features(name):
    attn, x, out = layer(name="linear", feature_map=name, head_dim=5, v_head_dim=3)
    q, k, v = heads(attn, x, "qkv")
    q, k = FEATURES[name](q), FEATURES[name](k)
    expected = torch.zeros_like(v)
    for i in range(LENGTH):
        weights = torch.einsum("bhd,bjhd->bjh", q[:, i], k[:, : i + 1])
        expected[:, i] = (
            torch.einsum("bjh,bjhe->bhe", weights, v[:, : i + 1])
            / (weights.sum(1) + 1e-6)[..., None]
        )
    assert_close(out, expected.flatten(2) @ attn.o.weight.t())


@torch.no_grad()
def test_linear_sees_all_under_a_full_mask_and_without_a_sum_of_weights_is_a_product():
    attn, x, out = layer(mask="full", name="linear", feature_map="identity", normalise=False)
    q, k, v = heads(attn, x, "qkv")
    expected = torch.einsum("bihd,bjhd,bjhe->bihe", q, k, v) / math.sqrt(10)
    assert_close(out, expected.flatten(2) @ attn.o.weight.t())


@torch.no_grad()
def test_taylor_features_have_the_second_polynomial_of_exp():
    attn, x, out = layer(name="linear", feature_map="taylor")
    q, k, v = heads(attn, x, "qkv")
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(10)
    weights = (1 + scores + scores.square() / 2).tril()
    expected = torch.einsum("bhij,bjhe->bihe", weights / (weights.sum(-1, keepdim=True) + 1e-6), v)
    assert_close(out, expected.flatten(2) @ attn.o.weight.t())


@torch.no_grad()
def test_rotation_applies_to_features_in_the_numerator_only():
    attn, x, out = layer(position="rotary", name="linear")
    q, k, v = heads(attn, x, "qkv")
    q, k = FEATURES["elu"](q), FEATURES["elu"](k)
    angle = torch.arange(LENGTH)[:, None] * 10_000 ** -(torch.arange(0, 10, 2) / 10).double()
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]

    def turned(a):
        a = torch.complex(a[..., :5], a[..., 5:]) * turn
        return torch.cat([a.real, a.imag], -1)

    weights = torch.einsum("bihd,bjhd->bhij", turned(q), turned(k)).tril()
    total = torch.einsum("bihd,bjhd->bhij", q, k).tril().sum(-1, keepdim=True)
    expected = torch.einsum("bhij,bjhe->bihe", weights / (total + 1e-6), v)
    assert_close(
        out, expected.flatten(2) @ attn.o.weight.t(), rtol=1e-5, atol=1e-6
    )  # angles are in fp32


def test_a_short_convolution_worked_out():
    conv = ShortConvolution(1, 3)
    conv.weight.data = torch.tensor([[100.0, 10.0, 1.0]])
    none = torch.zeros(1, 2, 1)

    def read(x, before=none, real=None, segment=None):
        given = (None if field is None else torch.tensor([field]) for field in (real, segment))
        out, kept = conv(torch.tensor([x]).float()[..., None], before, *given)
        return out.flatten().int().tolist(), kept

    out, kept = read([1, 2, 3])
    assert out == [1, 12, 123]
    assert kept.flatten().tolist() == [2, 3]
    assert read([4, 5], kept)[0] == [234, 345]
    assert read([1, 2, 3, 4], segment=[0, 0, 1, 1])[0] == [1, 12, 3, 34]
    assert read([4, 5], kept, segment=[0, 1])[0] == [234, 5]
    assert read([4, 5, 6], read([1, 2, 3], segment=[0, 0, 1])[1])[0] == [
        34,
        345,
        456,
    ]  # 2 is of another document
    out, kept = read([9, 1, 9, 2, 3, 9], real=[False, True, False, True, True, False])
    assert [out[i] for i in (1, 3, 4)] == [1, 12, 123]
    assert kept.flatten().tolist() == [2, 3]


@pytest.mark.parametrize("value_heads", [2, 4])
@torch.no_grad()
def test_gated_delta_is_the_layer_of_qwen3_next(value_heads, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    sizes = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 6,
    }
    config = transformers.Qwen3NextConfig(
        hidden_size=36,
        num_hidden_layers=1,
        linear_value_head_dim=5,
        linear_conv_kernel_dim=4,
        **sizes,
    )
    theirs = Qwen3NextGatedDeltaNet(config, 0).eval()
    randomise(theirs)
    ours = {
        "name": "gated_delta",
        "heads": 2,
        "v_heads": value_heads,
        "head_dim": 6,
        "v_head_dim": 5,
    }
    attn, x, _ = layer(**ours)
    rows = theirs.in_proj_qkvz.weight.unflatten(0, (2, -1)).split(
        [6, 6, *[5 * value_heads // 2] * 2], 1
    )
    state = {
        f"{n}.weight": part.flatten(0, 1)
        for n, part in zip(("q", "k", "v", "gate"), rows, strict=True)
    }
    beta, alpha = theirs.in_proj_ba.weight.unflatten(0, (2, -1)).chunk(2, 1)
    state |= {"beta.weight": beta.flatten(0, 1), "alpha.weight": alpha.flatten(0, 1)}
    convs = theirs.conv1d.weight[:, 0].split([12, 12, 5 * value_heads])
    state |= {f"{n}_conv.weight": part for n, part in zip("qkv", convs, strict=True)}
    state |= {"log_rate": theirs.A_log, "step": theirs.dt_bias, "weight": theirs.norm.weight}
    attn.load_state_dict(
        state | {"o.weight": theirs.out_proj.weight}
    )  # strict: every parameter of ours comes from theirs
    made = model_of(ours, position="none")
    context = made.decoder.contexts(*[Tokens(ids=IDS).with_positions()] * 2, (), x.dtype)[0]
    assert_close(attn(x, None, context), theirs(x.float()).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_cache_does_not_grow(name):
    made = model_of(name, position="none", max_len=4096)
    cache = made.cache(2, 4096)
    held = cache.bytes
    assert held == made.cache(2, 8).bytes
    for ids in (IDS, IDS[:, :1]):
        made(ids, cache=cache)
    assert cache.bytes == held
    with pytest.raises(ConfigError, match=r"^rewind: a state is one sum of the whole past"):
        cache.rewind(1)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_padding_between_tokens_does_not_change_the_state(name):
    made, real = model_of(name), torch.ones(2, LENGTH, dtype=torch.bool)
    real[0, 4:7], real[1, :2], real[1, 9] = False, False, False
    for documents in (None, (torch.arange(LENGTH) >= 8).long().expand(2, -1)):
        got = made(IDS, real=real, document=documents)
        cache, parts = made.cache(2, LENGTH), (slice(0, 6), slice(6, LENGTH))
        split = [
            made(
                IDS[:, at],
                real=real[:, at],
                document=None if documents is None else documents[:, at],
                cache=cache,
            )
            for at in parts
        ]
        for row, there in enumerate(real):
            document = None if documents is None else documents[row, there][None]
            separate = made(IDS[row, there][None], document=document)[0]
            assert_close(got[row, there], separate, rtol=1e-9, atol=1e-9)
            assert_close(torch.cat(split, 1)[row, there], separate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_a_beam_of_padded_prompts_is_that_of_each_prompt(name):
    made, prompts = model_of(name), [IDS[0, :5], IDS[1, :3]]
    real = torch.arange(5) >= torch.tensor([[0], [2]])
    padded = torch.zeros(2, 5, dtype=torch.long)
    for row, prompt in zip(padded, prompts, strict=True):
        row[-len(prompt) :] = prompt
    both = made.generate(padded, real=real, beam=3, max_new_tokens=6)
    for row, prompt in zip(both, prompts, strict=True):
        assert (
            row[-6:].tolist()
            == made.generate(prompt[None], beam=3, max_new_tokens=6)[0, -6:].tolist()
        )


@pytest.mark.parametrize("name", KINDS)
def test_under_autocast_the_state_is_in_fp32(name):
    made = build_model(tiny_config(attn=name, position="none"), VOCAB)
    randomise(made)
    exact = made.eval()(IDS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, cache = made(IDS), made.cache(2, LENGTH)
        made(IDS, cache=cache)
    assert cache.caches[0]["attn"].tensors[0].dtype == torch.float32
    assert (out - exact).abs().max() < 0.1 * exact.abs().max()
    out.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in made.parameters())


ALIBI = (
    "attn: attn 'linear' reads a sum over the past and forms no scores, which position 'alibi'"
    " changes one by one. Choose position=rotary, learned, sinusoidal or none."
)
REFUSED = [
    (["attn=linear", "position=alibi"], [ALIBI]),
    (
        ["attn=gated_delta", "position=xpos"],
        [
            "attn: attn 'gated_delta' replaces the value of a key of length 1 in its state, and"
            " position 'xpos' changes lengths, so that the state may grow without bound. Choose"
            " position=rotary or none."
        ],
    ),
    (
        ["attn=linear", "kernel=sdpa"],
        [
            "kernel: 'sdpa' cannot: attn 'linear' has no scores that sdpa could"
            " compute. Use kernel=auto or kernel=reference."
        ],
    ),
    (
        ["kernel=chunked"],
        [
            "kernel: 'chunked' cannot: attn 'multi_head' keeps no state, whose steps chunked"
            " computes. Use kernel=auto or kernel=reference."
        ],
    ),
    (
        ["attn=linear", "attn.feature_map=identity"],
        [
            "attn.feature_map: 'identity' has weights of either sign, whose sum may be 0. Set"
            " normalise=false, or feature_map=elu."
        ],
    ),
    (
        ["attn=gated_delta", "attn.v_heads=6"],
        ["attn.v_heads: must be a multiple of attn.heads; got 6 and 4. Try 4."],
    ),
    (["attn=linear", "attn.chunk=0"], ["attn.chunk: must be at least 1 token; got 0."]),
]


test_refused_configs = refusals_among(REFUSED)


def test_cross_attention_rejects_order_dependent_states():
    words = {"encoder": {"mask": "causal"}, "position": "none"}
    assert not faults(tiny_config("encoder_decoder", attn="linear", **words))
    (said,) = set(messages(faults(tiny_config("encoder_decoder", attn="retention", **words))))
    assert (
        said
        == "model.decoder.cross: attn 'retention' passes its state from token to token in their"
        " order, and tokens of another stack have no place in it. Choose"
        " model.decoder.cross.name=multi_head."
    )
    assert not faults(
        tiny_config(
            "encoder_decoder", attn="retention", decoder={"cross": {"name": "multi_head"}}, **words
        )
    )
    some = {"cross": {"mask": {"name": "sliding_window", "window": 2}}}
    (said,) = set(
        messages(faults(tiny_config("encoder_decoder", attn="linear", decoder=some, **words)))
    )
    assert (
        said == "model.decoder.cross: attn 'linear' reads one sum over a source, of which mask"
        " 'sliding_window' hides some. Choose model.decoder.cross.mask.name=full."
    )


def test_the_norm_of_gated_delta_begins_as_one_of_torch():
    layer = (
        build_model(tiny_config(attn={"name": "gated_delta", "v_head_dim": 6}), VOCAB)
        .stack.blocks[0]
        .attn
    )
    assert torch.equal(layer.weight, torch.nn.RMSNorm(6).weight)
