"""Phi-3 and Phi-4 (Abdin et al., 2024, arXiv:2404.14219 and arXiv:2412.08905)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    ROPE_KEYS,
    decoder_keys,
    position_options,
    rope_node,
    rope_settings,
    unread,
    window,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Values, refuse
from xformer_kit.hub.layouts import CONCATENATED
from xformer_kit.hub.weights import fused, linear

HERE, ORIGINAL = "decoder.{i}", "original_max_position_embeddings"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")


def read_rope(config: Values) -> dict:
    """Rotary positions; the factor of longrope is the quotient of both lengths."""
    settings = rope_settings(config, 1e4)
    name = settings["rope_type"]
    if name == "default":
        return position_options(settings)
    if name not in ("longrope", "su", "yarn"):
        raise refuse("rope_parameters.rope_type", name, "must be default or longrope")
    original = config.get(ORIGINAL, 4096)
    factor = settings.pop("factor", None) or config.get("max_position_embeddings", 4096) / original
    if settings.get("attention_factor") is None:
        settings["factor"] = max(float(factor), 1.0)
    return position_options({**settings, "rope_type": "longrope", ORIGINAL: original})


def write_rope(values: Values) -> dict:
    """The same as keys of a config.json."""
    node = rope_node(values)
    original = {ORIGINAL: node[ORIGINAL]} if ORIGINAL in node else {}
    return {"rope_parameters": node, **original}


FAMILY = Family(
    preset="phi3",
    architectures=("Phi3ForCausalLM",),
    keys=(
        *decoder_keys(eps=1e-5, positions=4096),
        Functions((*ROPE_KEYS, ORIGINAL), read_rope, write_rope),
        window(None),
        Fixed("attention_bias", False),
        Fixed("lm_head_bias", False),
        unread("full_attn_mod", "interpolate_factor"),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *fused(f"{LAYER}.self_attn.qkv_proj", QKV, CONCATENATED),
        *linear(f"{LAYER}.self_attn.o_proj", f"{HERE}.attn.o"),
        *fused(f"{LAYER}.mlp.gate_up_proj", (f"{HERE}.ffn.gate", f"{HERE}.ffn.up"), CONCATENATED),
        *linear(f"{LAYER}.mlp.down_proj", f"{HERE}.ffn.down"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
