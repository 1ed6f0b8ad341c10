"""Keys of other decoders: older names, defaults of files without them, and values that cannot be
composed.
"""

import pytest

from xformer_kit.config import compose
from xformer_kit.export import published_form
from xformer_kit.hub.identify import identify
from xformer_kit.registry import ConfigError

SIZES = {
    "vocab_size": 37,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "intermediate_size": 52,
}
MOE = {"n_routed_experts": 8, "moe_intermediate_size": 11}
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 12}
OLD = {
    "neox": (
        {**SIZES, "model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 500},
        {"position.fraction": 0.5, "position.theta": 500.0, "placement.shared": False},
    ),
    "phi": (
        {**SIZES, "model_type": "phi", "partial_rotary_factor": 0.75, "rope_theta": 500.0},
        {"position.fraction": 0.75, "position.theta": 500.0},
    ),
    "stablelm": ({**SIZES, "model_type": "stablelm"}, {"position.fraction": 0.25}),
    "bloom": (
        {
            "model_type": "bloom",
            "vocab_size": 37,
            "n_embed": 48,
            "n_layer": 2,
            "num_attention_heads": 6,
            "attention_softmax_in_fp32": True,
        },
        {"model.dim": 48, "attn.heads": 6},
    ),
    "falcon": (
        {**{k: v for k, v in SIZES.items() if "inter" not in k}, "model_type": "falcon"},
        {"attn.kv_heads": 1, "model.decoder.layout": [["attn", "ffn"]], "position": "rotary"},
    ),
    "cohere2": (
        {**SIZES, "model_type": "cohere2", "sliding_window_pattern": 2},
        {"model.decoder.pattern": ["base", "full"], "mask.window": 4096},
    ),
    "deepseek": (
        {**SIZES, **MOE, "model_type": "deepseek_v2", "num_experts_per_tok": 2}
        | {"rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}, "rope_theta": 1e4},
        {
            "position.scaling": {
                "name": "yarn",
                "factor": 40,
                "original": 12,
                "mscale": 0.7,
                "mscale_all": 0.7,
            },
            "model.decoder.first": None,
        },
    ),
    "gpt-oss": (
        {**SIZES, "model_type": "gpt_oss"},
        {
            "model.decoder.pattern": ["local", "base"],
            "model.decoder.variants.local.mask.window": 128,
            "position.theta": 150_000.0,
        },
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_a_file_of_an_older_version_is_read(name):
    config, expected = OLD[name]
    found = identify(config).overrides
    assert {key: found[key] for key in expected} == expected


REFUSED = {
    "xglm": (
        {"d_model": 48, "num_layers": 2, "attention_heads": 6, "ffn_dim": 40, "pad_token_id": 2},
        "pad_token_id: must be 0 or 1, whose rows of sinusoids, which are 0, are not read; got 2.",
    ),
    "lfm2": ({"conv_bias": True}, "conv_bias: must be false; got true."),
    "deepseek_v3": (
        {**MOE, "num_key_value_heads": 3},
        "num_key_value_heads: must be num_attention_heads, 6; got 3.",
    ),
    "dots1": (
        {**MOE, "num_experts_per_tok": 2, "sliding_window": None}
        | {"layer_types": ["sliding_attention"] * 4},
        "layer_types: needs sliding_window; got 'sliding_attention'.",
    ),
    "smollm3": (
        {"layer_types": ["sliding_attention"] * 4, "sliding_window": 5},
        "layer_types: needs use_sliding_window=true; got 'sliding_attention'.",
    ),
    "qwen3_next": (
        {"shared_expert_intermediate_size": 500},
        "shared_expert_intermediate_size: must be a multiple of moe_intermediate_size, 512;"
        " got 500.",
    ),
    "cohere2": ({"sliding_window": None}, "sliding_window: must be a number of tokens; got null."),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_value_that_cannot_be_composed_is_refused(model_type):
    keys, message = REFUSED[model_type]
    with pytest.raises(ConfigError) as error:
        identify({**SIZES, "model_type": model_type, **keys})
    assert f"config.json: {message}" in [str(one).strip() for one in error.value.messages]


def test_forms_of_falcon_and_mpt_that_cannot_be_composed_are_refused():
    falcon = {k: v for k, v in SIZES.items() if "inter" not in k} | {"model_type": "falcon"}
    both = {"new_decoder_architecture": True, "parallel_attn": False}
    with pytest.raises(ConfigError, match="parallel_attn: must be true with new_decoder"):
        identify(falcon | both)
    mpt = {"model_type": "mpt", "vocab_size": 37, "d_model": 48, "n_layers": 2, "n_heads": 6}
    with pytest.raises(ConfigError, match=r"attn_config\.alibi: must be true; got false"):
        identify(mpt | {"attn_config": {"alibi": False}})


PRESETS = (
    *("apertus", "bloom", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5"),
    *("falcon", "glm4", "glm4_moe", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "minicpm3", "mpt"),
    *("lfm2", "nemotron", "opt", "phi", "qwen3_next", "stablelm", "starcoder2", "xglm"),
)


@pytest.mark.extended
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_model_of_its_family(name):
    config = compose([f"preset={name}", "model.layers=5"], data=False)
    _, keys = published_form(config, 37, [name])
    assert keys["model_type"] == name
