"""Mistral (Jiang et al., 2023, arXiv:2310.06825)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys, window
from xformer_kit.hub.family import Family

FAMILY = Family(
    preset="mistral",
    architectures=("MistralForCausalLM",),
    keys=(*decoder_keys(kv_heads=8, positions=131_072), window(4096)),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
