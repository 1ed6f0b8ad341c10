"""Llama 1 to 3 (Touvron et al., 2023, arXiv:2302.13971; Dubey et al., 2024, arXiv:2407.21783)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LLAMA_WEIGHTS,
    activation,
    length,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

LLAMA_KEYS = (
    *sizes(),
    Key("num_key_value_heads", "attn.kv_heads", None),
    Key("head_dim", "attn.head_dim", None),
    Key("intermediate_size", "ffn.width"),
    activation("hidden_act", "silu"),
    Key("rms_norm_eps", "norm.eps", 1e-6),
    length(2048),
    rope(),
)
FAMILY = Family(
    preset="llama",
    architectures=("LlamaForCausalLM",),
    keys=(
        *LLAMA_KEYS,
        tied(False),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
