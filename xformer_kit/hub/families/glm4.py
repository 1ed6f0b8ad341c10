"""GLM-4-0414 (Z.ai, 2025)."""

from xformer_kit.hub.common import EMBEDDING_AND_HEAD, HEAD_IS_EMBEDDING, LAYER
from xformer_kit.hub.families.glm import GLM_KEYS, SUBLAYERS
from xformer_kit.hub.family import Family
from xformer_kit.hub.weights import linear

PLACEMENT = "decoder.{i}.placement"
FAMILY = Family(
    preset="glm4",
    architectures=("Glm4ForCausalLM",),
    keys=GLM_KEYS,
    weights=(
        *EMBEDDING_AND_HEAD,
        *linear(f"{LAYER}.input_layernorm", f"{PLACEMENT}.attn.before.0"),
        *linear(f"{LAYER}.post_self_attn_layernorm", f"{PLACEMENT}.attn.after.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{PLACEMENT}.ffn.before.0"),
        *linear(f"{LAYER}.post_mlp_layernorm", f"{PLACEMENT}.ffn.after.0"),
        *SUBLAYERS,
    ),
    tied=HEAD_IS_EMBEDDING,
)
