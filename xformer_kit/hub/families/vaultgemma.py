"""VaultGemma (Sinha et al., 2025, arXiv:2510.15001)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    KINDS,
    LAYER,
    LOCAL,
    activation,
    decoder_keys,
    gated_ffn,
    layer_types,
    offset_norm,
    projections,
)
from xformer_kit.hub.families.gemma2 import kinds
from xformer_kit.hub.families.gemma3_text import QUERY_SCALE
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import Weight

HERE = "decoder.{i}"
FAMILY = Family(
    preset="vaultgemma",
    architectures=("VaultGemmaForCausalLM",),
    keys=(
        *decoder_keys(
            kv_heads=4,
            head_dim=256,
            activated=activation("hidden_activation", "gelu_pytorch_tanh"),
            positions=8192,
            tie=True,
        ),
        QUERY_SCALE,
        Key("attention_bias", "attn.bias", False),
        Key("attn_logit_softcapping", "attn.score.softcap", 50.0),
        Key("final_logit_softcapping", "model.logit_softcap", 30.0),
        Key("sliding_window", f"{LOCAL}.mask.window", 4096),
        layer_types(KINDS, kinds),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        offset_norm("model.norm", "decoder.norm"),
        offset_norm(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.norm.0"),
        offset_norm(f"{LAYER}.pre_feedforward_layernorm", f"{HERE}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.self_attn"),
        *gated_ffn(f"{LAYER}.mlp"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
