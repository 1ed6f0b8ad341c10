"""AFM (Arcee AI, 2025)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    decoder_keys,
    projections,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import linear

FAMILY = Family(
    preset="arcee",
    architectures=("ArceeForCausalLM",),
    keys=(
        *decoder_keys(activated=activation("hidden_act", "relu2"), eps=1e-5, positions=4096),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *linear(f"{LAYER}.mlp.up_proj", "decoder.{i}.ffn.up"),
        *linear(f"{LAYER}.mlp.down_proj", "decoder.{i}.ffn.down"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
