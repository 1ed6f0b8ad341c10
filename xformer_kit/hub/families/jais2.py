"""Jais 2 (Inception, MBZUAI and Cerebras, 2025)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    decoder_keys,
    fully_connected,
    projections,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

FAMILY = Family(
    preset="jais2",
    architectures=("Jais2ForCausalLM",),
    keys=(
        *decoder_keys(
            activated=activation("hidden_act", "relu2"),
            eps=Key("layer_norm_eps", "norm.eps", 1e-5),
            positions=8192,
        ),
        Key("attention_bias", "attn.bias", True),
        Key("mlp_bias", "ffn.bias", True),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *fully_connected(f"{LAYER}.mlp", "up_proj", "down_proj"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
