"""Gemma 3 (Gemma Team, 2025, arXiv:2503.19786)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    ROPE_KEYS,
    activation,
    gated_ffn,
    layer_types,
    length,
    position_options,
    projections,
    rope_node,
    rope_settings,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values
from xformer_kit.hub.weights import Weight

HERE, LOCAL = "decoder.{i}", "model.decoder.variants.local"
PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")
KINDS = {"sliding_attention": "local", "full_attention": "base"}


def offset(theirs: str, ours: str) -> Weight:
    """A norm whose gain is 1 + weight."""
    return Weight(f"{theirs}.weight", f"{ours}.offset")


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    every = next((config[key] for key in PATTERN if key in config), 6)
    layers = range(1, config.get("num_hidden_layers", 26) + 1)
    return ["full_attention" if at % every == 0 else "sliding_attention" for at in layers]


def read_rope(config: Values) -> dict:
    """Rotary positions of both kinds of layers."""
    node = config.get("rope_parameters") or {}
    if not node.keys() <= KINDS.keys():
        node = {}  # of a file before transformers 5
    plain = {key: value for key, value in config.items() if key != "rope_parameters"}
    local = {"rope_theta": config.get("rope_local_base_freq", 1e4)}
    both = (
        ("position", "full_attention", plain, 1e6),
        (f"{LOCAL}.position", "sliding_attention", local, 1e4),
    )
    found: dict = {}
    for at, kind, own, theta in both:
        of_kind = {"rope_parameters": node[kind]} if kind in node else own
        found |= position_options(rope_settings(of_kind, theta), at)
    return found


def write_rope(values: Values) -> dict:
    """Both kinds of layers."""
    at = {"full_attention": "position", "sliding_attention": f"{LOCAL}.position"}
    return {"rope_parameters": {kind: rope_node(values, path) for kind, path in at.items()}}


FAMILY = Family(
    preset="gemma3",
    architectures=("Gemma3ForCausalLM",),
    keys=(
        *sizes(),
        Key("num_key_value_heads", "attn.kv_heads", 4),
        Key("head_dim", "attn.head_dim", 256),
        Key("intermediate_size", "ffn.width", 9216),
        activation("hidden_activation", "gelu_pytorch_tanh"),
        Key("rms_norm_eps", "norm.eps", 1e-6),
        length(131_072),
        tied(True),
        Key(
            "query_pre_attn_scalar",
            "attn.scale",
            256,
            to_ours=lambda scalar: scalar**-0.5,
            to_theirs=lambda scale: round(scale**-2),
        ),
        Key("final_logit_softcapping", "model.logit_softcap", None),
        Fixed("attn_logit_softcapping", None),
        Fixed("attention_bias", False),
        Fixed("use_bidirectional_attention", False, None),
        Key("sliding_window", f"{LOCAL}.mask.window", 4096),
        layer_types(KINDS, kinds, *PATTERN),
        Functions((*ROPE_KEYS, "rope_local_base_freq"), read_rope, write_rope),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        offset("model.norm", "decoder.norm"),
        offset(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.before.0"),
        offset(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.attn.after.0"),
        offset(f"{LAYER}.pre_feedforward_layernorm", f"{HERE}.placement.ffn.before.0"),
        offset(f"{LAYER}.post_feedforward_layernorm", f"{HERE}.placement.ffn.after.0"),
        offset(f"{LAYER}.self_attn.q_norm", f"{HERE}.attn.q_norm"),
        offset(f"{LAYER}.self_attn.k_norm", f"{HERE}.attn.k_norm"),
        *projections(f"{LAYER}.self_attn"),
        *gated_ffn(f"{LAYER}.mlp"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
