"""ModernBERT (Warner et al., 2024, arXiv:2412.13663)."""

from xformer_kit.hub.common import (
    ROPE_KEYS,
    activation,
    length,
    position_options,
    rope_node,
    rope_settings,
    shortest_period,
    sizes,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse, unsupported
from xformer_kit.hub.layouts import CONCATENATED
from xformer_kit.hub.weights import Weight, fused, linear

HERE, LAYER = "encoder.{i}", "model.layers.{i}"
LOCAL = "model.encoder.variants.local"
# The first layer has no norm before its attention.
KINDS = {"full_attention": "base", "sliding_attention": "local"}
TYPE_KEYS = ("layer_types", "global_attn_every_n_layers")
THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def read_types(config: Values) -> dict:
    """The variant of each layer."""
    every = config.get(TYPE_KEYS[1], 3)
    layers = range(config.get("num_hidden_layers", 22))
    default = ["sliding_attention" if at % every else "full_attention" for at in layers]
    kinds = config.get("layer_types") or default
    for kind in kinds:
        if kind not in KINDS:
            raise unsupported("layer_types", kind, KINDS)
    if kinds[0] != "full_attention":
        raise refuse("layer_types", kinds[0], "must have full_attention first")
    return {"model.encoder.pattern": shortest_period([KINDS[kind] for kind in kinds])}


def write_types(values: Values) -> dict:
    """The kind of each layer."""
    kinds = {own: kind for kind, own in KINDS.items()} | {"first": "full_attention"}
    return {"layer_types": [kinds[variant] for variant in values["model.encoder.order"]]}


def read_rope(config: Values) -> dict:
    """Rotary positions of both kinds of layers."""
    node = config.get("rope_parameters") or {}
    plain = {key: v for key, v in config.items() if key == "rope_scaling"}
    found: dict = {}
    for kind, theta, at in (
        ("full_attention", 160_000.0, ""),
        ("sliding_attention", 10_000.0, f"{LOCAL}."),
    ):
        of_kind = {"rope_parameters": node[kind]} if node.get(kind) else plain
        settings = rope_settings(of_kind, config.get(THETAS[kind], theta))
        found |= position_options(settings, f"{at}position")
    return found


def write_rope(values: Values) -> dict:
    """Both kinds of layers."""
    at = {"full_attention": "position", "sliding_attention": f"{LOCAL}.position"}
    return {"rope_parameters": {kind: rope_node(values, path) for kind, path in at.items()}}


FAMILY = Family(
    preset="modernbert",
    architectures=("ModernBertForMaskedLM",),
    keys=(
        *sizes(),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_activation", "gelu"),
        length(8192),
        Key("norm_eps", "norm.eps", 1e-5),
        Key("norm_bias", "norm.bias", False),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
        Key("decoder_bias", "model.head_bias", True),
        Key("classifier_bias", "model.head_transform_bias", False),
        activation("classifier_activation", "gelu", "model.head_activation"),
        Fixed("tie_word_embeddings", True),
        Fixed("position_embedding_type", "absolute", "rope", None),
        unread("layer_norm_eps"),
        Functions(TYPE_KEYS, read_types, write_types),
        Key(  # the farthest tokens are half of it away, on both sides
            "local_attention",
            f"{LOCAL}.mask.window",
            128,
            to_ours=lambda window: window // 2 + 1,
            to_theirs=lambda window: 2 * (window - 1),
        ),
        Functions((*ROPE_KEYS, *THETAS.values()), read_rope, write_rope),
    ),
    weights=(
        Weight("model.embeddings.tok_embeddings.weight", "embed.weight"),
        *linear("model.embeddings.norm", "encoder.embed_norm"),
        *linear(f"{LAYER}.attn_norm", f"{HERE}.placement.attn.norm.0"),
        *fused(f"{LAYER}.attn.Wqkv", [f"{HERE}.attn.{name}" for name in "qkv"], CONCATENATED),
        *linear(f"{LAYER}.attn.Wo", f"{HERE}.attn.o"),
        *linear(f"{LAYER}.mlp_norm", f"{HERE}.placement.ffn.norm.0"),
        *fused(f"{LAYER}.mlp.Wi", [f"{HERE}.ffn.gate", f"{HERE}.ffn.up"], CONCATENATED),
        *linear(f"{LAYER}.mlp.Wo", f"{HERE}.ffn.down"),
        *linear("model.final_norm", "encoder.norm"),
        *linear("head.dense", "head.transform.dense"),
        *linear("head.norm", "head.transform.norm"),
        Weight("decoder.bias", "head.bias"),
    ),
    tied=(("decoder.weight", "model.embeddings.tok_embeddings.weight"),),
)
