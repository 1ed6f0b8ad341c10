"""Command R and R+ (Cohere, 2024, https://docs.cohere.com/docs/command-r)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    activation,
    gated_ffn,
    length,
    projections,
    query_key_norm,
    rope,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.layouts import ROWS
from xformer_kit.hub.weights import Weight, linear

HERE = "decoder.{i}"
COHERE_KEYS = (
    *sizes(),
    length(8192),
    Key("num_key_value_heads", "attn.kv_heads", None),
    Key("intermediate_size", "ffn.width"),
    activation("hidden_act", "silu"),
    Key("layer_norm_eps", "norm.eps", 1e-5),
    Key("logit_scale", "model.logit_scale", 0.0625),
    Key("attention_bias", "attn.bias", False),
    tied(True),
    unread("model_max_length"),
)
COHERE_WEIGHTS = (
    *EMBEDDING_AND_HEAD,
    *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn_ffn.norm.0"),
    *projections(f"{LAYER}.self_attn"),
    *gated_ffn(f"{LAYER}.mlp"),
)
FAMILY = Family(
    preset="cohere",
    architectures=("CohereForCausalLM",),
    keys=(*COHERE_KEYS, rope(500_000.0), query_key_norm("use_qk_norm", "each_head")),
    weights=(
        *COHERE_WEIGHTS,
        *(
            Weight(f"{LAYER}.self_attn.{n}.weight", f"{HERE}.attn.{n}.{{h}}.weight", ROWS)
            for n in ("q_norm", "k_norm")
        ),
    ),
    tied=HEAD_IS_EMBEDDING,
)
