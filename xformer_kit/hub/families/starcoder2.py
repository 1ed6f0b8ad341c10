"""StarCoder2 (Lozhkov et al., 2024, arXiv:2402.19173)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    all_biases,
    fully_connected,
    length,
    projections,
    rope,
    sizes,
    tied,
    unread,
    window,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Key

FAMILY = Family(
    preset="starcoder2",
    architectures=("Starcoder2ForCausalLM",),
    keys=(
        *sizes(),
        length(4096),
        Key("num_key_value_heads", "attn.kv_heads", 2),
        Key("head_dim", "attn.head_dim", None),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "gelu_pytorch_tanh"),
        Key("norm_epsilon", "norm.eps", 1e-5),
        all_biases("use_bias", True),
        window(),
        rope(),
        Fixed("norm_type", "layer_norm"),
        Fixed("mlp_type", "default"),
        unread("activation_function", "layer_norm_epsilon"),
        tied(True),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *fully_connected(f"{LAYER}.mlp", "c_fc", "c_proj"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
