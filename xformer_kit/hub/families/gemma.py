"""Gemma (Gemma Team, 2024, arXiv:2403.08295)."""

from xformer_kit.hub.common import (
    ACTIVATIONS,
    HEAD_IS_EMBEDDING,
    LAYER,
    decoder_keys,
    gated_ffn,
    offset_norm,
    projections,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Fixed, Key
from xformer_kit.hub.weights import Weight

GELU = "gelu_pytorch_tanh"
# In the first files gelu is written where gelu_pytorch_tanh is meant.
NAMES = {GELU: "gelu_tanh", **ACTIVATIONS, "gelu": "gelu_tanh"}
FAMILY = Family(
    preset="gemma",
    architectures=("GemmaForCausalLM",),
    keys=(
        *decoder_keys(
            kv_heads=16,
            head_dim=256,
            activated=Choice("hidden_act", "ffn.activation", NAMES, GELU),
            positions=8192,
            tie=True,
        ),
        Key("attention_bias", "attn.bias", False),
        Fixed("use_bidirectional_attention", None, False),
        unread("hidden_activation"),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        offset_norm("model.norm", "decoder.norm"),
        offset_norm(f"{LAYER}.input_layernorm", "decoder.{i}.placement.attn.norm.0"),
        offset_norm(f"{LAYER}.post_attention_layernorm", "decoder.{i}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.self_attn"),
        *gated_ffn(f"{LAYER}.mlp"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
