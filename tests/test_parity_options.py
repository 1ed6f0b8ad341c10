"""Architectures that differ from Llama in norms, placements, residuals and logits: the same weights
give the same logits as `transformers`' OLMo, Gemma 2 (without its bound on scores) and Granite.
"""

import pytest
import torch

from tests.peers import (
    DIM,
    HEADS,
    LAYERS,
    POSITIONS,
    SMALL,
    VOCAB,
    WIDTH,
    close,
    close_gradients,
    llama_state,
    loaded,
    randomised,
    transformers,
)
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH

COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "intermediate_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS,
    "attn_implementation": "eager",
}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}


def attention(**more):
    return {"name": "multi_head", "heads": HEADS, "kv_heads": 3, "head_dim": None, **more}


def olmo():
    """Layer norms without weight and bias."""
    config = transformers.OlmoConfig(
        **COMMON,
        **ROPE,
        num_key_value_heads=3,
        tie_word_embeddings=False,
        pad_token_id=None,
        eos_token_id=None,
    )
    theirs = randomised(transformers.OlmoForCausalLM(config))
    state = theirs.state_dict()
    norms = [
        f"model.layers.{i}.{name}_layernorm.weight"
        for i in range(LAYERS)
        for name in ("input", "post_attention")
    ]
    state = llama_state(state | dict.fromkeys(["model.norm.weight", *norms]))
    ours = tiny_config(
        attn=attention(),
        position={"name": "rotary", "theta": 500.0},
        ffn={"name": "glu", "width": WIDTH},
        norm={"name": "layer", "weight": False, "bias": False},
        tie_embeddings=False,
        **SMALL,
    )
    return theirs, loaded(ours, {name: value for name, value in state.items() if value is not None})


def granite():
    """Four multipliers."""
    config = transformers.GraniteConfig(
        **COMMON,
        **ROPE,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        embedding_multiplier=3.0,
        attention_multiplier=0.2,
        residual_multiplier=0.22,
        logits_scaling=8.0,
    )
    theirs = randomised(transformers.GraniteForCausalLM(config))
    state = llama_state(theirs.state_dict())
    ours = tiny_config(
        attn=attention(scale=0.2),
        position={"name": "rotary", "theta": 500.0},
        ffn={"name": "glu", "width": WIDTH},
        norm={"name": "rms", "eps": 1e-5, "cast": "before"},
        embed_scale=3.0,
        residual_multiplier=0.22,
        logit_scale=0.125,
        **SMALL,
    )
    del state["head.weight"]
    return theirs, loaded(ours, state)


def gemma2():
    """A norm of 1 + weight before and after every sublayer, and bounded logits."""
    config = transformers.Gemma2Config(
        **COMMON,
        **ROPE,
        num_key_value_heads=3,
        head_dim=10,
        query_pre_attn_scalar=25,
        sliding_window=100,
        attn_logit_softcapping=None,
        final_logit_softcapping=2.0,
        rms_norm_eps=1e-5,
        pad_token_id=None,
    )
    theirs = randomised(transformers.Gemma2ForCausalLM(config))
    ours = tiny_config(
        attn=attention(head_dim=10, scale=0.2),
        position={"name": "rotary", "theta": 500.0},
        ffn={"name": "glu", "width": WIDTH, "activation": "gelu_tanh"},
        placement="sandwich",
        norm={"name": "rms", "eps": 1e-5, "unit_offset": True},
        embed_scale="sqrt_dim",
        logit_softcap=2.0,
        **SMALL,
    )
    return theirs, loaded(ours, gemma2_state(theirs.state_dict()))


def gemma2_state(theirs):
    state = {
        "embed.weight": theirs["model.embed_tokens.weight"],
        "decoder.norm.offset": theirs["model.norm.weight"],
    }
    norms = {
        "placement.attn.before.0": "input_layernorm",
        "placement.attn.after.0": "post_attention_layernorm",
        "placement.ffn.before.0": "pre_feedforward_layernorm",
        "placement.ffn.after.0": "post_feedforward_layernorm",
    }
    for i in range(LAYERS):
        block, them = f"decoder.{i}", f"model.layers.{i}"
        state |= {
            f"{block}.attn.{n}.weight": theirs[f"{them}.self_attn.{n}_proj.weight"] for n in "qkvo"
        }
        state |= {
            f"{block}.ffn.{n}.weight": theirs[f"{them}.mlp.{n}_proj.weight"]
            for n in ("gate", "up", "down")
        }
        state |= {
            f"{block}.{one}.offset": theirs[f"{them}.{other}.weight"]
            for one, other in norms.items()
        }
    return state


@pytest.mark.parametrize("pair", [olmo, granite, gemma2])
def test_logits_and_gradients_are_equal(pair):
    theirs, ours = pair()
    ids = torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(3))
    close(ours(ids), theirs(ids).logits)
    close_gradients((theirs, ours), ids)
