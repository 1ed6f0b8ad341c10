"""Persimmon (Adept, 2023)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    fully_connected,
    length,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Key
from xformer_kit.hub.layouts import PER_HEAD
from xformer_kit.hub.weights import Weight, fused, linear

ATTENTION, HERE = f"{LAYER}.self_attn", "decoder.{i}.attn"
QKV = tuple(f"{HERE}.{name}" for name in "qkv")
FAMILY = Family(
    preset="persimmon",
    architectures=("PersimmonForCausalLM",),
    keys=(
        *sizes(),
        length(16_384),
        Key("intermediate_size", "ffn.width", 16_384),
        activation("hidden_act", "relu2"),
        Key("layer_norm_eps", "norm.eps", 1e-5),
        Choice("qk_layernorm", "attn.qk_norm", {False: "none", True: "head"}, True),
        rope(fraction=0.5),
        tied(False),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("model.final_layernorm", "decoder.norm"),
        *PRE_NORMS,
        *fused(f"{ATTENTION}.query_key_value", QKV, PER_HEAD),
        *linear(f"{ATTENTION}.dense", f"{HERE}.o"),
        *linear(f"{ATTENTION}.q_layernorm", f"{HERE}.q_norm"),
        *linear(f"{ATTENTION}.k_layernorm", f"{HERE}.k_norm"),
        *fully_connected(f"{LAYER}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
