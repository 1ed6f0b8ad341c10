"""GPT-NeoX (Black et al., 2022, arXiv:2204.06745) and Pythia (Biderman et al., 2023,
arXiv:2304.01373).
"""

from xformer_kit.hub.common import (
    ROPE_KEYS,
    activation,
    fully_connected,
    is_parallel,
    length,
    parallel_layout,
    position_options,
    rope_node,
    rope_settings,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values
from xformer_kit.hub.layouts import PER_HEAD
from xformer_kit.hub.weights import Weight, fused, linear

HERE, LAYER = "decoder.{i}", "gpt_neox.layers.{i}"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")


def read_rope(config: Values) -> dict:
    """Rotary positions, also of files before transformers 5."""
    theta = config.get("rotary_emb_base", 10_000.0)
    return position_options(rope_settings(config, theta, config.get("rotary_pct", 0.25)))


FAMILY = Family(
    preset="gpt_neox",
    architectures=("GPTNeoXForCausalLM",),
    keys=(
        *sizes(),
        length(2048),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "gelu"),
        Key("layer_norm_eps", "norm.eps", 1e-5),
        Key("attention_bias", "attn.bias", True),
        Functions(
            ("use_parallel_residual",),
            lambda config: parallel_layout(config.get("use_parallel_residual", True), shared=False),
            lambda values: {"use_parallel_residual": is_parallel(values)},
        ),
        Functions(
            (*ROPE_KEYS, "rotary_pct", "rotary_emb_base"),
            read_rope,
            lambda values: {"rope_parameters": rope_node(values, default=0.25)},
        ),
        tied(False),
    ),
    weights=(
        Weight("gpt_neox.embed_in.weight", "embed.weight"),
        Weight("embed_out.weight", "head.weight"),
        *linear("gpt_neox.final_layer_norm", "decoder.norm"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn_ffn.norm.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.attn_ffn.norm.1"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.ffn.norm.0"),
        *fused(f"{LAYER}.attention.query_key_value", QKV, PER_HEAD),
        *linear(f"{LAYER}.attention.dense", f"{HERE}.attn.o"),
        *fully_connected(f"{LAYER}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    prefix="gpt_neox.",
    unused=("*.rotary_emb.inv_freq", "*.attention.bias", "*.attention.masked_bias"),
    tied=(("embed_out.weight", "gpt_neox.embed_in.weight"),),
)
