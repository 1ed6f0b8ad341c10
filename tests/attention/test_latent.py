"""attn latent: by its equations, equal to DeepSeek's layers, absorbed as plain, and its cache."""

import math
import os

import pytest
import torch
from refusals import refusals
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention import ATTENTIONS, Latent
from xformer_kit.attention.latent import LatentShape
from xformer_kit.kernel import Reference
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import BATCH, LENGTH, VOCAB, Composition, randomise
from xformer_kit.mask import Causal
from xformer_kit.model.build import build_model
from xformer_kit.norm import NORMS
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.fused_projections import with_fused_projections
from xformer_kit.tensors.tokens import AttentionContext, Tokens

os.environ.setdefault("HF_HUB_OFFLINE", "1")

HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
SMALL = {
    "name": "latent",
    "heads": 3,
    "head_dim": 10,
    "rope_head_dim": 4,
    "v_head_dim": 7,
    "kv_rank": 5,
}
COMPRESSED = SMALL | {"q_rank": 8, "bias": True}
IDS = Composition(tiny_config(), "").ids


def made(attn, **more):
    model = build_model(tiny_config(attn=attn, **more), VOCAB)
    randomise(model)
    return model.double().eval()


def heads(x, size):
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


@torch.no_grad()
@pytest.mark.parametrize("node", [SMALL, COMPRESSED], ids=["plain queries", "compressed queries"])
@pytest.mark.parametrize("place", ["none", "shaw", "alibi"])
def test_by_the_equations(node, place):
    model, held = made(node, position=place), []
    attn = model.decoder.blocks[0].attn
    attn.register_forward_hook(lambda _, args, out: held.extend((args[0], out)))
    model(IDS)
    x, out = held
    c = attn.kv_norm(attn.kv_down(x))
    q, asks = heads(attn.q(attn.q_norm(attn.q_down(x)) if "q_rank" in node else x), 14).split(
        [10, 4], -1
    )
    shared = attn.k_rope(x)[:, None]
    scores = (q @ heads(attn.k(c), 10).mT + asks @ shared.mT) * 14**-0.5
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    if place == "shaw":  # its table meets the decoupled queries
        position = next(iter(model.decoder.position.values()))
        rows = (-distance).clamp(-position.span, position.span) + position.span
        scores = scores + torch.einsum("bhtd,tsd->bhts", asks, position.weight[rows]) * 14**-0.5
    if place == "alibi":
        scores = scores - model.decoder.position["base"].slope[:, None, None] * distance.abs()
    expected = scores.masked_fill(HIDDEN, -torch.inf).softmax(-1) @ heads(attn.v(c), 7)
    assert_close(out, attn.o(expected.transpose(1, 2).flatten(2)))


# The published layers.

THEIRS = {
    "hidden_size": 36,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "kv_lora_rank": 5,
    "attn_implementation": "eager",
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 2.0,
}
ROPES = {
    "as trained": ({"rope_type": "default", "rope_theta": 100.0}, {"name": "none"}),
    "yarn": (
        YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
        {
            "name": "yarn",
            "factor": 8.0,
            "original": 16,
            "beta_fast": 2.0,
            "mscale": 0.7,
            "mscale_all": 1.3,
        },
    ),
    "yarn without mscale": (
        YARN,
        {"name": "yarn", "factor": 8.0, "original": 16, "beta_fast": 2.0},
    ),
}


def drawn(layer: nn.Module) -> nn.Module:
    torch.manual_seed(5)
    for p in layer.parameters():
        p.copy_(torch.randn(p.shape) * (0.3 if p.ndim < 2 else p.shape[-1] ** -0.5) + (p.ndim < 2))
    return layer.double().eval()


def translated(layer: nn.Module) -> dict:
    """Their state under our names: keys and values are made by one matrix there, head by head."""
    k, v = layer.kv_b_proj.weight.unflatten(0, (3, 17)).split([10, 7], 1)
    state = {
        "k.weight": k.flatten(0, 1),
        "v.weight": v.flatten(0, 1),
        "kv_norm.weight": layer.kv_a_layernorm.weight,
    }
    for kind, both in layer.kv_a_proj_with_mqa.named_parameters():
        state[f"kv_down.{kind}"], state[f"k_rope.{kind}"] = both.split([5, 4])
    state |= {f"o.{kind}": p for kind, p in layer.o_proj.named_parameters()}
    if layer.q_b_proj is None:
        return state | {"q.weight": layer.q_proj.weight}
    state |= {f"q_down.{kind}": p for kind, p in layer.q_a_proj.named_parameters()}
    return state | {"q.weight": layer.q_b_proj.weight, "q_norm.weight": layer.q_a_layernorm.weight}


def ours(state: dict, node: dict, x: torch.Tensor, scaling: dict) -> torch.Tensor:
    norm = {"name": "rms", "eps": 1e-6}
    kernel = Reference()
    layer = ATTENTIONS.create(
        node, dim=36, norm=lambda dim: NORMS.create(norm, dim=dim), kernel=kernel
    ).double()
    layer.load_state_dict(state)  # strict: every parameter of ours comes from theirs
    place = POSITIONS.create(
        {"name": "rotary", "theta": 100.0, "pairing": "interleaved", "scaling": scaling},
        head_dim=4,
        max_len=LENGTH,
    )
    tokens = Tokens(ids=torch.zeros(2, LENGTH, dtype=torch.long)).with_positions()
    context = AttentionContext(
        tokens, tokens, Causal(), place.prepare(tokens, tokens), gain=place.score_gain()
    )
    return layer(
        x, None, context._replace(prepared=kernel.prepare(context, 3, False, torch.float64))
    )


@torch.no_grad()
@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_the_layer_of_deepseek_is_equal(version, compressed, rope):
    transformers = pytest.importorskip("transformers")
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    theirs, scaling = ROPES[rope]
    more = {
        "q_lora_rank": 8 if compressed else None,
        "attention_bias": compressed,
        "rope_parameters": dict(theirs),
    }
    config = (transformers.DeepseekV2Config if version == 2 else transformers.DeepseekV3Config)(
        **THEIRS, **more
    )
    config.head_dim = 4
    module, name = (v2, "DeepseekV2") if version == 2 else (v3, "DeepseekV3")
    layer = drawn(getattr(module, f"{name}Attention")(config, 0))
    x = torch.randn(2, LENGTH, 36, generator=torch.Generator().manual_seed(2)).double()
    table = getattr(module, f"{name}RotaryEmbedding")(config)(x, torch.arange(LENGTH)[None])
    hidden = torch.zeros(LENGTH, LENGTH).double().masked_fill(HIDDEN, -torch.inf)[None, None]
    expected = layer(x, attention_mask=hidden, position_embeddings=table)[0]
    got = ours(translated(layer), COMPRESSED if compressed else SMALL, x, scaling)
    assert_close(got, expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_mscale_all_is_a_factor_on_the_scale():
    """The same rates and the same gain on what is turned, with the factor written out as the
    layer's own scale.
    """
    wide = 0.1 * math.log(4.0)
    yarn = {"name": "yarn", "factor": 4.0}
    said = made(
        SMALL, position={"name": "rotary", "scaling": yarn | {"mscale": 0.7, "mscale_all": 1.3}}
    )
    factor = (0.7 * wide + 1) / (1.3 * wide + 1)
    written = made(
        SMALL | {"scale": 14**-0.5 * (1.3 * wide + 1) ** 2},
        position={"name": "rotary", "scaling": yarn | {"attention_factor": factor}},
    )
    assert_close(said(IDS), written(IDS))


# Generation.


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
@pytest.mark.parametrize("position", ["rotary", "alibi", "cope"])
def test_the_absorbed_form_is_the_plain_form(position, kernel, monkeypatch):
    config = tiny_config(attn=COMPRESSED, position=position, kernel=kernel)
    if position == "cope" and kernel == "sdpa":
        assert messages(faults(config))  # it computes no scores of a position
        return
    model, out, forms = made(COMPRESSED, position=position, kernel=kernel), {}, []
    absorbed = Latent._attend_absorbed
    monkeypatch.setattr(
        Latent, "_attend_absorbed", lambda *given: forms.append("absorbed") or absorbed(*given)
    )
    for form in (True, False):
        monkeypatch.setattr(Latent, "_use_absorbed", lambda self, q, kv, form=form: form)
        past = model.cache(BATCH, LENGTH)
        out[form] = torch.cat(
            [model(component, cache=past) for component in IDS.split([6, 1, 4, 2], 1)], 1
        )
        assert len(forms) == 2 * 4  # both layers, each call
    assert_close(out[True], out[False])
    assert_close(out[False], model(IDS))


@torch.no_grad()
def test_the_form_with_fewer_operations_is_used(monkeypatch):
    """A prompt makes keys and values once, for all its queries; a step would make them all for one
    query.
    """
    calls = []
    for form in ("_attend_absorbed", "_attend"):
        kept = getattr(Latent, form)
        monkeypatch.setattr(
            Latent, form, lambda *given, f=form, kept=kept: calls.append(f) or kept(*given)
        )
    model = made(SMALL | {"kv_rank": 40}, layers=1)
    past = model.cache(BATCH, LENGTH)
    for component in IDS.split([11, 1, 1], 1):
        model(component, cache=past)
    model(IDS)
    assert calls == ["_attend", "_attend_absorbed", "_attend_absorbed", "_attend"]


@torch.no_grad()
def test_maps_that_are_more_than_linear_are_not_absorbed():
    model = made(SMALL, layers=1)
    attn, past, seen = model.decoder.blocks[0].attn, model.cache(BATCH, LENGTH), []
    attn.k.register_forward_hook(lambda *_: seen.append(1))
    for component in IDS.split([11, 1, 1], 1):
        model(component, cache=past)
    assert len(seen) == 3


def test_the_cache_holds_latents_and_one_key_of_all_heads():
    latent, multi = (
        made(node, layers=1).cache(2, 100)
        for node in (SMALL, {"name": "multi_head", "heads": 3, "kv_heads": 3})
    )
    assert latent.bytes == 2 * 100 * (5 + 4) * 8  # float64
    assert multi.bytes == 2 * 100 * 3 * (10 + 10) * 8
    two = build_model(tiny_config("encoder_decoder", attn=SMALL, layers=1), VOCAB).cache(2, 100, 30)
    assert two.bytes == 2 * (100 + 30) * (5 + 4) * 4


@torch.no_grad()
@pytest.mark.parametrize("node", [SMALL, COMPRESSED, SMALL | {"rope_head_dim": 0}], ids=str)
def test_fused_projections_give_the_same(node):
    model = made(node, position="none")
    expected = model(IDS)
    with torch.inference_mode(), with_fused_projections(model, 2):
        assert len(model.decoder.blocks[0].attn.fused_maps.sizes) == (
            3 if node["rope_head_dim"] else 2
        )
        assert_close(model(IDS), expected)


# Special cases, and sizes.


@torch.no_grad()
def test_a_latent_of_all_channels_is_multi_head():
    """With as many channels as the model, no norm and D = 1, keys and values are x K and x V;
    nothing is decoupled.
    """
    node = {"name": "latent", "heads": 6, "head_dim": 10, "rope_head_dim": 0, "kv_rank": 36}
    ours = made(node, position="alibi", norm="none")
    multi = made(
        {"name": "multi_head", "heads": 6, "kv_heads": 6, "head_dim": 10},
        position="alibi",
        norm="none",
    )
    state = multi.state_dict()
    for name, value in ours.state_dict().items():
        state.setdefault(name, torch.eye(36).double() if "kv_down" in name else value)
    ours.load_state_dict(state)
    assert_close(ours(IDS), multi(IDS))


def test_default_sizes_are_those_of_the_paper():
    """kv_rank is 4 head_dim and rope_head_dim half of head_dim (section 3.1.2 of the paper: 512 and
    64 of 128).
    """
    attn = Latent(256, NORMS["rms"], Reference(), shape=LatentShape(heads=2))
    assert (attn.kv_rank, attn.rope_head_dim, attn.v_head_dim) == (512, 64, 128)
    six = Latent(60, NORMS["rms"], Reference(), shape=LatentShape(6))
    assert six.rope_head_dim == 6  # rotary turns pairs


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_norms_of_latents_may_have_an_eps_of_their_own(norm):
    block = made(COMPRESSED | {"norm_eps": 0.3}, norm=norm).decoder.blocks[0]
    norms = block.attn.q_norm, block.attn.kv_norm, block.placement["attn"].norm[0]
    assert [norm.eps == 0.3 for norm in norms] == [True, True, False]


COMPOSED = [
    {
        "attn": COMPRESSED,
        "position": {
            "name": "rotary",
            "scaling": {"name": "yarn", "mscale": 0.7, "mscale_all": 1.3},
        },
    },
    {"attn": SMALL, "position": "transformer_xl"},
    {"attn": SMALL | {"rope_head_dim": 0}, "position": "t5"},
    {
        "model": "encoder_decoder",
        "attn": SMALL,
        "position": "xpos",
        "decoder": {"cross": {"position": "rotary"}},
    },
]


@pytest.mark.extended
@pytest.mark.parametrize("changes", COMPOSED, ids=str)
def test_laws(changes):
    config = tiny_config(**changes)
    assert not faults(config)
    for law in (
        "causality",
        "documents",
        "padding",
        "cache",
        "cache with padding",
        "select and rewind",
        "kernels",
        "gradients",
        "source padding",
        "source once",
    ):
        LAWS[law](config)


REFUSED = {
    "attn=latent attn.norm_eps=0": (
        "attn.norm_eps: must be above 0; got 0. null is that of the block's norms."
    ),
    "attn=latent attn.norm_eps=0.1 norm=none": (
        "attn.norm_eps: is an option of the norms of latents, and norm 'none' has none; got 0.1."
        " Leave it out, or choose norm=rms."
    ),
    "attn=latent attn.rope_head_dim=0": (
        "attn: position 'rotary' acts on the decoupled query and key, which have"
        " no channels with rope_head_dim=0. Leave rope_head_dim out, or choose position=none,"
        " learned or alibi."
    ),
    "attn=latent attn.rope_head_dim=3": (
        "position: rotary turns pairs of channels, so attn.rope_head_dim must be even; got 3. Try"
        " attn.rope_head_dim=4, or position=none."
    ),
    "attn=latent attn.rope_head_dim=2 position.fraction=0.4": (
        "position: rotary turns pairs of channels, so position.fraction * attn.rope_head_dim must"
        " be even, and at least 2; got 0. Try"
        " attn.rope_head_dim=2 position.fraction=1."
    ),
    "attn=latent attn.kv_rank=0 attn.q_rank=-1": (
        "attn.kv_rank: must be at least 1 channel; got 0.\nattn.q_rank: must be at least 1 channel;"
        " got -1."
    ),
    "attn=latent attn.kv_heads=2": (
        "attn.kv_heads: attn 'latent' has no option 'kv_heads'. It has: heads, head_dim,"
        " rope_head_dim, v_head_dim, kv_rank, q_rank, bias, norm_eps, scale, dropout. Try"
        " attn=differential, attn=multi_head, attn=compositional, attn=cosine, attn=distance,"
        " attn=exclusive, attn=laser or attn=persistent_memory."
    ),
}


test_refused_configs = refusals(REFUSED)
