"""GLM-4.5 (GLM-4.5 Team, 2025, arXiv:2508.06471), without the layer that predicts further tokens,
which transformers does not load.
"""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    length,
    projections,
    query_key_norm,
    query_key_value_bias,
    rope,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.families.deepseek_v3 import (
    CORRECTION,
    dense_first,
    expert_groups,
    experts,
    mixture,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import linear

ATTN = "decoder.{i}.attn"
HEAD_NORMS = tuple(
    weight
    for name in ("q_norm", "k_norm")
    for weight in linear(f"{LAYER}.self_attn.{name}", f"{ATTN}.{name}")
)
FAMILY = Family(
    preset="glm4_moe",
    architectures=("Glm4MoeForCausalLM",),
    keys=(
        *sizes(),
        length(131_072),
        Key("num_key_value_heads", "attn.kv_heads", 8),
        Key("head_dim", "attn.head_dim", None),
        Key("rms_norm_eps", "norm.eps", 1e-5),
        query_key_value_bias("attention_bias", False),
        query_key_norm("use_qk_norm"),
        *mixture(8, 1, 1.0),
        dense_first(1),
        expert_groups(1, 1, "top2"),
        Key("norm_topk_prob", "ffn.router.renormalise", True),
        rope(fraction=0.5),
        unread("num_nextn_predict_layers", "num_mtp_layers"),
        tied(False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *HEAD_NORMS,
        *experts(CORRECTION),
    ),
    unused=("*.rotary_emb.inv_freq", "model.layers.46.*", "model.layers.92.*"),
    tied=HEAD_IS_EMBEDDING,
)
