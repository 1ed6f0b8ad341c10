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
    DENSE_KEYS,
    expert_groups,
    experts,
    mixture,
)
from xformer_kit.hub.families.glm4_moe import HEAD_NORMS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values
from xformer_kit.hub.layer_kinds import (
    WINDOW_KEYS,
    layer_options,
    layers_with,
    option_of,
    window_keys,
    windows,
)

LAYER_KEYS = (*WINDOW_KEYS, "max_window_layers", *DENSE_KEYS)


def late_windows(config: Values) -> list[bool]:
    """Whether each layer of a file without layer_types has a window."""
    first = config.get("max_window_layers", 62)
    used = config.get("sliding_window", 4096) is not None
    return [used and at >= first for at in range(config["num_hidden_layers"])]


def read_layers(config: Values) -> dict:
    """Layers without experts, the first ones, and layers with a window."""
    dense = config.get(DENSE_KEYS[0], 0) or 0
    node = {"name": "glu", "width": config[DENSE_KEYS[1]], "activation": "silu"}
    has, window = windows(config, late_windows, 4096)
    is_dense = [at < dense for at in range(config["num_hidden_layers"])]
    return layer_options(
        {"dense": is_dense, "local": has}, {"dense": {"ffn": node}, "local": window}
    )


def write_layers(values: Values) -> dict:
    """The same as keys of a config.json."""
    dense = layers_with(values, "dense")
    width = option_of(values, "dense", "ffn.width") or values["ffn.width"]
    return {**window_keys(values), **dict(zip(DENSE_KEYS, (sum(dense), width), strict=True))}


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
        Functions(LAYER_KEYS, read_layers, write_layers),
        expert_groups(1, 1, "top2"),
        Key("norm_topk_prob", "ffn.router.renormalise", False),
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
