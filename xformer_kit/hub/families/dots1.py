"""dots.llm1 (rednote-hilab, 2025, arXiv:2506.05767)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    length,
    projections,
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
from xformer_kit.hub.families.glm4_moe import HEAD_NORMS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse

WINDOW_KEYS = ("layer_types", "sliding_window", "max_window_layers")


def no_window(config: Values) -> dict:
    """The kinds of layers, of which none may have a window."""
    kinds, window, first = (config.get(key) for key in WINDOW_KEYS)
    if kinds is None and window is not None:
        some = config["num_hidden_layers"] > (62 if first is None else first)
        kinds = ["sliding_attention"] * some
    if unknown := [kind for kind in kinds or () if kind != "full_attention"]:
        raise refuse("layer_types", unknown[0], "must be full_attention in all layers")
    return {}


FAMILY = Family(
    preset="dots1",
    architectures=("Dots1ForCausalLM",),
    keys=(
        *sizes(),
        length(2048),
        Key("num_key_value_heads", "attn.kv_heads", 32),
        Key("head_dim", "attn.head_dim", None),
        Key("rms_norm_eps", "norm.eps", 1e-6),
        Key("attention_bias", "attn.bias", False),
        *mixture(None, None, 1.0),
        dense_first(0),
        expert_groups(1, 1, "top2"),
        Key("norm_topk_prob", "ffn.router.renormalise", False),
        Functions(WINDOW_KEYS, no_window, lambda values: {"sliding_window": None}),
        rope(),
        unread("use_sliding_window"),
        Fixed("scoring_func", "noaux_tc"),
        Fixed("topk_method", "noaux_tc"),
        tied(False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *HEAD_NORMS,
        *experts(CORRECTION),
    ),
    tied=HEAD_IS_EMBEDDING,
)
