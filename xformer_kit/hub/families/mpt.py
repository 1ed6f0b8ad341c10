"""MPT (MosaicML, 2023, https://www.databricks.com/blog/mpt-7b)."""

from xformer_kit.hub.common import fully_connected, length, sizes, tied
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.layouts import CONCATENATED
from xformer_kit.hub.weights import Weight, fused, linear
from xformer_kit.registry import format_value

HERE, LAYER = "decoder.{i}", "transformer.blocks.{i}"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")
# Keys of attn_config with the one value that can be composed.
ATTENTION = {
    "attn_type": "multihead_attention",
    "prefix_lm": False,
    "qk_ln": False,
    "attn_uses_sequence_id": False,
    "alibi": True,
    "alibi_bias_max": 8,
}


def attention(config: Values) -> dict:
    """The options in attn_config."""
    node = config.get("attn_config") or {}
    for key, value in ATTENTION.items():
        if node.get(key, value) != value:
            raise refuse(f"attn_config.{key}", node[key], f"must be {format_value(value)}")
    return {
        "attn.clip": node.get("clip_qkv") or None,
        "attn.scale": node.get("softmax_scale"),
    }


def attn_config(values: Values) -> dict:
    """The node attn_config."""
    own = {"clip_qkv": values["attn.clip"], "softmax_scale": values["attn.scale"]}
    return {"attn_config": {**ATTENTION, **own}}


FAMILY = Family(
    preset="mpt",
    architectures=("MptForCausalLM", "MPTForCausalLM"),
    keys=(
        *sizes("d_model", "n_layers", "n_heads"),
        length(2048, "max_seq_len"),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Functions(("attn_config",), attention, attn_config),
        Fixed("expansion_ratio", 4),
        Fixed("no_bias", True),
        Fixed("norm_type", "low_precision_layernorm"),
        Fixed("logit_scale", None),
        Fixed("embedding_fraction", 1.0),
        Fixed("learned_pos_emb", True, False),  # with ALiBi there are none
        tied(True),
    ),
    weights=(
        Weight("transformer.wte.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("transformer.norm_f", "decoder.norm"),
        *linear(f"{LAYER}.norm_1", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.norm_2", f"{HERE}.placement.ffn.norm.0"),
        *fused(f"{LAYER}.attn.Wqkv", QKV, CONCATENATED),
        *linear(f"{LAYER}.attn.out_proj", f"{HERE}.attn.o"),
        *fully_connected(f"{LAYER}.ffn", "up_proj", "down_proj"),
    ),
    prefix="transformer.",
    tied=(("lm_head.weight", "transformer.wte.weight"),),
)
