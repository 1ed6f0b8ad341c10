"""OLMo (Groeneveld et al., 2024, arXiv:2402.00838)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

FAMILY = Family(
    preset="olmo",
    architectures=("OlmoForCausalLM",),
    keys=(
        *(key for key in decoder_keys() if "rms_norm_eps" not in key.keys),
        Key("attention_bias", "attn.bias", False),
        Key("clip_qkv", "attn.clip", None),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
