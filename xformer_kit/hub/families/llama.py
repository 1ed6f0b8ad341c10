"""Llama 1 to 3 (Touvron et al., 2023, arXiv:2302.13971; Dubey et al., 2024, arXiv:2407.21783)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

LLAMA_KEYS = decoder_keys()
FAMILY = Family(
    preset="llama",
    architectures=("LlamaForCausalLM",),
    keys=(
        *LLAMA_KEYS,
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
