"""OLMo 2 (Walsh et al., 2025, arXiv:2501.00656)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    OUTPUT_NORMS,
    decoder_keys,
    gated_ffn,
    projections,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import linear

HERE = "decoder.{i}"
QK_NORMS = (
    *linear(f"{LAYER}.self_attn.q_norm", f"{HERE}.attn.q_norm.norm"),
    *linear(f"{LAYER}.self_attn.k_norm", f"{HERE}.attn.k_norm.norm"),
)
OLMO2_WEIGHTS = (
    *EMBEDDING_AND_HEAD,
    *OUTPUT_NORMS,
    *projections(f"{LAYER}.self_attn"),
    *gated_ffn(f"{LAYER}.mlp"),
    *QK_NORMS,
)
FAMILY = Family(
    preset="olmo2",
    architectures=("Olmo2ForCausalLM",),
    keys=(*decoder_keys(eps=1e-5), Key("attention_bias", "attn.bias", False)),
    weights=OLMO2_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
