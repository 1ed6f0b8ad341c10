"""Hunyuan dense models (Tencent, 2025)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    LLAMA_WEIGHTS,
    ROPE_KEYS,
    decoder_keys,
    position_options,
    rope_node,
    rope_settings,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values
from xformer_kit.hub.weights import linear

NOT_READ = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")  # with alpha


def read_rope(config: Values) -> dict:
    """Rotary positions; alpha makes the waves longer by a factor of theta, for any length."""
    settings = rope_settings(config, 1e4)
    alpha = settings.pop("alpha", None)
    if settings["rope_type"] == "dynamic" and alpha:
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        settings["rope_theta"] *= alpha ** (dim / (dim - 2))
        settings["rope_type"] = "default"
        settings = {key: value for key, value in settings.items() if key not in NOT_READ}
    return position_options(settings)


FAMILY = Family(
    preset="hunyuan_v1_dense",
    architectures=("HunYuanDenseV1ForCausalLM",),
    keys=(
        *(key for key in decoder_keys(eps=1e-5) if "rope_parameters" not in key.keys),
        Functions(ROPE_KEYS, read_rope, lambda values: {"rope_parameters": rope_node(values)}),
        Key("attention_bias", "attn.bias", False),
        unread("eod_token_id"),
    ),
    weights=(
        *LLAMA_WEIGHTS,
        *linear(f"{LAYER}.self_attn.query_layernorm", "decoder.{i}.attn.q_norm"),
        *linear(f"{LAYER}.self_attn.key_layernorm", "decoder.{i}.attn.k_norm"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
