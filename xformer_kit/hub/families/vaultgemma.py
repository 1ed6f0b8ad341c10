"""VaultGemma (Sinha et al., 2025, arXiv:2510.15001)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    gated_ffn,
    offset_norm,
    projections,
)
from xformer_kit.hub.families.gemma2 import GEMMA2_KEYS
from xformer_kit.hub.family import Family
from xformer_kit.hub.weights import Weight

HERE = "decoder.{i}"
FAMILY = Family(
    preset="vaultgemma",
    architectures=("VaultGemmaForCausalLM",),
    keys=GEMMA2_KEYS,
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
