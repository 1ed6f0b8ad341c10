"""LFM2 (Liquid AI, 2025, arXiv:2511.23404): gated convolutions over a few tokens, and some layers
of attention.
"""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    length,
    pattern_options,
    projections,
    rope,
    sizes,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, unsupported
from xformer_kit.hub.layouts import CONCATENATED, EachTensor
from xformer_kit.hub.weights import Weight, fused, linear

HERE = "decoder.{i}"
CONV, WIDTH = "model.decoder.variants.conv", "conv_L_cache"
KINDS = {"conv": "conv", "full_attention": "base"}
LAYER_KEYS = ("layer_types", "full_attn_idxs", WIDTH)
ADJUSTED = ("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of")
# Of released files; the class does not read them.
OLD_KEYS = (
    *("block_dim", "block_norm_eps", "block_use_swiglu", "block_use_xavier_init", "conv_dim"),
    *("block_mlp_init_scale", "block_out_init_scale", "conv_dim_out", "conv_use_xavier_init"),
    *("num_heads", "theta", "use_pos_enc"),
)
FFN_WIDTH = ("intermediate_size", "block_ff_dim")


def layers(config: Values) -> dict:
    """The kind of each layer, and the tokens of a convolution."""
    kinds, attending = config.get("layer_types"), config.get("full_attn_idxs")
    count = config["num_hidden_layers"]
    if not kinds:
        attending = range(count) if attending is None else attending
        kinds = ["full_attention" if at in attending else "conv" for at in range(count)]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unsupported("layer_types", unknown[0], KINDS)
    width = {"conv.attn.width": config.get(WIDTH, 3)}
    return pattern_options([KINDS[kind] for kind in kinds], width)


def layer_keys(values: Values) -> dict:
    """The same as keys of a config.json."""
    kinds = {own: kind for kind, own in KINDS.items()}
    found = {"layer_types": [kinds[variant] for variant in values["model.decoder.order"]]}
    return found | {WIDTH: values.get(f"{CONV}.attn.width", 3)}


def ffn_width(config: Values) -> dict:
    """Hidden channels of the networks: 2/3 of a size times a factor, rounded up, or that size."""
    width = config.get("block_ff_dim", config.get("intermediate_size", 12_288))
    adjusted, factor, multiple = (
        config.get(key, default) for key, default in zip(ADJUSTED, (True, 1.0, 256), strict=True)
    )
    if adjusted:
        width = int(2 * width / 3)
        if factor is not None:
            width = -(-int(factor * width) // multiple) * multiple
    return {"ffn.width": width}


def ffn_width_keys(values: Values) -> dict:
    """The size as it is."""
    return {"intermediate_size": values["ffn.width"], ADJUSTED[0]: False}


ONE_CHANNEL = EachTensor(lambda x: x[:, 0], lambda x: x[:, None])  # (c, 1, width) is (c, width)
FAMILY = Family(
    preset="lfm2",
    architectures=("Lfm2ForCausalLM",),
    keys=(
        *sizes(),
        length(128_000),
        Key("num_key_value_heads", "attn.kv_heads", 8),
        Key("norm_eps", "norm.eps", 1e-5),
        Functions(LAYER_KEYS, layers, layer_keys),
        Functions((*FFN_WIDTH, *ADJUSTED), ffn_width, ffn_width_keys),
        Fixed("conv_bias", False),
        rope(1e6),
        Key("tie_word_embeddings", "model.tie_embeddings", True, also=("tie_embedding",)),
        unread(*OLD_KEYS),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("model.embedding_norm", "decoder.norm"),
        *linear(f"{LAYER}.operator_norm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.ffn_norm", f"{HERE}.placement.ffn.norm.0"),
        *fused(
            f"{LAYER}.conv.in_proj",
            [f"{HERE}.attn.{name}" for name in ("gate_in", "gate_out", "v")],
            CONCATENATED,
        ),
        Weight(f"{LAYER}.conv.conv.weight", f"{HERE}.attn.conv.weight", ONE_CHANNEL),
        Weight(
            f"{LAYER}.conv.out_proj.weight",
            f"{HERE}.attn.o.weight",
            without=f"{HERE}.attn.q.weight",
        ),
        *projections(f"{LAYER}.self_attn", out="out_proj"),
        *linear(f"{LAYER}.self_attn.q_layernorm", f"{HERE}.attn.q_norm"),
        *linear(f"{LAYER}.self_attn.k_layernorm", f"{HERE}.attn.k_norm"),
        *linear(f"{LAYER}.feed_forward.w1", f"{HERE}.ffn.gate"),
        *linear(f"{LAYER}.feed_forward.w3", f"{HERE}.ffn.up"),
        *linear(f"{LAYER}.feed_forward.w2", f"{HERE}.ffn.down"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
