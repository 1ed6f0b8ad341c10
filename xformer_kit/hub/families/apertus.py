"""Apertus (Apertus Project, 2025, arXiv:2509.14233)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    ROPE_KEYS,
    length,
    position_options,
    projections,
    rope_node,
    rope_settings,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values
from xformer_kit.hub.layouts import EachTensor
from xformer_kit.hub.weights import Weight, linear

HERE = "decoder.{i}"
ACTIVATION = f"{LAYER}.mlp.act_fn"
NUMBER = EachTensor(lambda x: x[None], lambda x: x[0])  # () is (1,)
# Rotary positions of a file without them.
ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def read_rope(config: Values) -> dict:
    """Rotary positions."""
    has = config.get("rope_parameters") or config.get("rope_scaling")
    settings = config if has else {**config, "rope_parameters": ROPE}
    return position_options(rope_settings(settings, 12_000_000.0))


FAMILY = Family(
    preset="apertus",
    architectures=("ApertusForCausalLM",),
    keys=(
        *sizes(),
        length(65_536),
        Key("num_key_value_heads", "attn.kv_heads", None),
        Key("head_dim", "attn.head_dim", None),
        Key("intermediate_size", "ffn.width"),
        Key("rms_norm_eps", "norm.eps", 1e-5),
        Key("attention_bias", "attn.bias", False),
        Functions(ROPE_KEYS, read_rope, lambda values: {"rope_parameters": rope_node(values)}),
        Fixed("hidden_act", "xielu"),
        Fixed("mlp_bias", False),
        Fixed("post_norm", False),
        Fixed("qk_norm", True),
        tied(False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *linear(f"{LAYER}.attention_layernorm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.feedforward_layernorm", f"{HERE}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.self_attn"),
        *linear(f"{LAYER}.self_attn.q_norm", f"{HERE}.attn.q_norm"),
        *linear(f"{LAYER}.self_attn.k_norm", f"{HERE}.attn.k_norm"),
        *linear(f"{LAYER}.mlp.up_proj", f"{HERE}.ffn.up"),
        *linear(f"{LAYER}.mlp.down_proj", f"{HERE}.ffn.down"),
        Weight(f"{ACTIVATION}.alpha_p", f"{HERE}.ffn.positive"),
        Weight(f"{ACTIVATION}.alpha_n", f"{HERE}.ffn.negative"),
        Weight(f"{ACTIVATION}.beta", f"{HERE}.ffn.beta", NUMBER),
        Weight(f"{ACTIVATION}.eps", f"{HERE}.ffn.eps", NUMBER),
    ),
    tied=HEAD_IS_EMBEDDING,
)
