"""GLM-4 (GLM Team, 2024, arXiv:2406.12793), the files whose model_type is glm."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    decoder_keys,
    projections,
)
from xformer_kit.hub.families.helium import QKV_BIAS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice
from xformer_kit.hub.layouts import CONCATENATED
from xformer_kit.hub.weights import fused, linear

FFN = "decoder.{i}.ffn"
GLM_KEYS = (
    *decoder_keys(kv_heads=2, head_dim=128, eps=1.5625e-07, positions=131_072, fraction=0.5),
    Choice("attention_bias", "attn.bias", QKV_BIAS, True),
)
SUBLAYERS = (
    *projections(f"{LAYER}.self_attn"),
    *fused(f"{LAYER}.mlp.gate_up_proj", (f"{FFN}.gate", f"{FFN}.up"), CONCATENATED),
    *linear(f"{LAYER}.mlp.down_proj", f"{FFN}.down"),
)
FAMILY = Family(
    preset="glm",
    architectures=("GlmForCausalLM",),
    keys=GLM_KEYS,
    weights=(*EMBEDDING_AND_HEAD, *PRE_NORMS, *SUBLAYERS),
    tied=HEAD_IS_EMBEDDING,
)
