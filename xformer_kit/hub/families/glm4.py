"""GLM-4-0414 (Zeng et al., 2024, arXiv:2406.12793; norms before and after sublayers: the released
code).
"""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    activation,
    length,
    no_padding_token,
    projections,
    query_key_value_bias,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.layouts import CONCATENATED
from xformer_kit.hub.weights import fused, linear

HERE = "decoder.{i}"
FAMILY = Family(
    preset="glm4",
    architectures=("Glm4ForCausalLM",),
    keys=(
        *sizes(),
        length(131_072),
        Key("num_key_value_heads", "attn.kv_heads", 2),
        Key("head_dim", "attn.head_dim", 128),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "silu"),
        Key("rms_norm_eps", "norm.eps", 1.5625e-7),
        query_key_value_bias("attention_bias", True),
        rope(fraction=0.5),
        no_padding_token(),
        tied(False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.before.0"),
        *linear(f"{LAYER}.post_self_attn_layernorm", f"{HERE}.placement.attn.after.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.ffn.before.0"),
        *linear(f"{LAYER}.post_mlp_layernorm", f"{HERE}.placement.ffn.after.0"),
        *projections(f"{LAYER}.self_attn"),
        *fused(f"{LAYER}.mlp.gate_up_proj", (f"{HERE}.ffn.gate", f"{HERE}.ffn.up"), CONCATENATED),
        *linear(f"{LAYER}.mlp.down_proj", f"{HERE}.ffn.down"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
