"""Qwen3-Next (Qwen Team, 2025, https://qwen.ai/blog?id=qwen3-next): three layers with the gated
delta rule, then one with gated attention.
"""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    gated_ffn,
    length,
    pattern_options,
    rope,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse, unsupported
from xformer_kit.hub.layouts import CONCATENATED, KEYS_AND_VALUES, STACKED, EachTensor
from xformer_kit.hub.weights import Weight

HERE = "decoder.{i}"
ATTN, DELTA = f"{LAYER}.self_attn", f"{LAYER}.linear_attn"
EVERY, EPS = "full_attention_interval", "rms_norm_eps"
KINDS = {"linear_attention": "linear", "full_attention": "base"}
# Keys of the layers with the delta rule -> options of their variant, and defaults of the class.
LINEAR = {
    "linear_num_key_heads": ("heads", 16),
    "linear_num_value_heads": ("v_heads", 32),
    "linear_key_head_dim": ("head_dim", 128),
    "linear_value_head_dim": ("v_head_dim", 128),
    "linear_conv_kernel_dim": ("conv", 4),
    EPS: ("eps", 1e-6),
}
SHARED_KEYS = ("moe_intermediate_size", "shared_expert_intermediate_size")


def layers(config: Values) -> dict:
    """The kind of each layer, and the options of those with the delta rule."""
    every = config.get(EVERY, 4)
    kinds = config.get("layer_types") or [
        "full_attention" if at % every == 0 else "linear_attention"
        for at in range(1, config.get("num_hidden_layers", 48) + 1)
    ]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unsupported("layer_types", unknown[0], KINDS)
    options = {
        f"linear.attn.{own}": config.get(key, default) for key, (own, default) in LINEAR.items()
    }
    eps = {"norm.eps": config.get(EPS, 1e-6)}
    return pattern_options([KINDS[kind] for kind in kinds], options) | eps


def layer_keys(values: Values) -> dict:
    """The kind of each layer, and the sizes of those with the delta rule."""
    kinds = {own: kind for kind, own in KINDS.items()}
    order = values["model.decoder.order"]
    at = "model.decoder.variants.linear.attn"
    found = {key: values[f"{at}.{own}"] for key, (own, _) in LINEAR.items() if "linear" in order}
    kind_of = [kinds[variant] for variant in order]
    return {"layer_types": kind_of, **found, EPS: values["norm.eps"]}


def widths(config: Values) -> dict:
    """Widths of an expert and of the one for all tokens, which is some times as wide."""
    expert, shared = config.get(SHARED_KEYS[0], 512), config.get(SHARED_KEYS[1], 512)
    if shared % expert or not shared:
        raise refuse(SHARED_KEYS[1], shared, f"must be a multiple of {SHARED_KEYS[0]}, {expert}")
    return {"ffn.width": expert, "ffn.shared": shared // expert}


def width_keys(values: Values) -> dict:
    """Both widths."""
    width = values["ffn.width"]
    return dict(zip(SHARED_KEYS, (width, width * values["ffn.shared"]), strict=True))


def offset(theirs: str, ours: str) -> Weight:
    """A norm whose gain is 1 + weight."""
    return Weight(f"{theirs}.weight", f"{ours}.offset")


def weights(ours: str, *names: str) -> tuple[str, ...]:
    """Names of weights of ours."""
    return tuple(f"{HERE}.{ours}.{name}.weight" for name in names)


ONE_CHANNEL = EachTensor(lambda x: x[:, 0], lambda x: x[:, None])  # (c, 1, width) is (c, width)

FAMILY = Family(
    preset="qwen3_next",
    architectures=("Qwen3NextForCausalLM",),
    keys=(
        *sizes(),
        length(32_768),
        Key("num_key_value_heads", "attn.kv_heads", 2),
        Key("head_dim", "attn.head_dim", 256),
        Functions((*LINEAR, "layer_types", EVERY), layers, layer_keys),
        Functions(SHARED_KEYS, widths, width_keys),
        Key("num_experts", "ffn.experts", 512),
        Key("num_experts_per_tok", "ffn.top_k", 10),
        Key("norm_topk_prob", "ffn.router.renormalise", True),
        Fixed("hidden_act", "silu", "swish"),
        Fixed("attention_bias", False),
        Fixed("decoder_sparse_step", 1),
        Fixed("mlp_only_layers", [], None),
        unread("use_sliding_window"),
        unread("intermediate_size"),  # of layers without experts, which there are not
        rope(fraction=0.25),
        tied(False),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        offset("model.norm", "decoder.norm"),
        offset(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.norm.0"),
        offset(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.ffn.norm.0"),
        offset(f"{ATTN}.q_norm", f"{HERE}.attn.q_norm"),
        offset(f"{ATTN}.k_norm", f"{HERE}.attn.k_norm"),
        Weight(
            f"{DELTA}.in_proj_qkvz.weight", weights("attn", "q", "k", "v", "gate"), KEYS_AND_VALUES
        ),
        Weight(f"{DELTA}.in_proj_ba.weight", weights("attn", "beta", "alpha"), KEYS_AND_VALUES),
        Weight(
            f"{DELTA}.conv1d.weight",
            weights("attn", "q_conv", "k_conv", "v_conv"),
            ONE_CHANNEL | CONCATENATED,
        ),
        Weight(f"{DELTA}.A_log", f"{HERE}.attn.log_rate"),
        Weight(f"{DELTA}.dt_bias", f"{HERE}.attn.step"),
        Weight(
            (f"{DELTA}.norm.weight", f"{DELTA}.out_proj.weight"),
            (f"{HERE}.attn.weight", f"{HERE}.attn.o.weight"),
        ),
        Weight(f"{ATTN}.q_proj.weight", weights("attn", "q", "gate.input"), KEYS_AND_VALUES),
        *(Weight(f"{ATTN}.{n}_proj.weight", f"{HERE}.attn.{n}.weight") for n in "kvo"),
        Weight(f"{LAYER}.mlp.gate.weight", f"{HERE}.ffn.router.weight"),
        *(
            Weight(
                f"{LAYER}.mlp.experts.{{e}}.{n}_proj.weight",
                f"{HERE}.ffn.experts.{n}.weight",
                STACKED,
            )
            for n in ("gate", "up", "down")
        ),
        *gated_ffn(f"{LAYER}.mlp.shared_expert", f"{HERE}.ffn.shared"),
        Weight(f"{LAYER}.mlp.shared_expert_gate.weight", f"{HERE}.ffn.shared_gate.weight"),
    ),
    unused=("*.rotary_emb.inv_freq", "mtp.*"),
    tied=HEAD_IS_EMBEDDING,
)
