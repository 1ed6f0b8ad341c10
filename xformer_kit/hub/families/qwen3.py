"""Qwen3 (Yang et al., 2025, arXiv:2505.09388)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LAYER, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.families.qwen2 import WINDOWS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import linear

QK_NORMS = (
    *linear(f"{LAYER}.self_attn.q_norm", "decoder.{i}.attn.q_norm"),
    *linear(f"{LAYER}.self_attn.k_norm", "decoder.{i}.attn.k_norm"),
)
FAMILY = Family(
    preset="qwen3",
    architectures=("Qwen3ForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=32, head_dim=128, positions=32_768),
        Key("attention_bias", "attn.bias", False),
        WINDOWS,
    ),
    weights=(*LLAMA_WEIGHTS, *QK_NORMS),
    tied=HEAD_IS_EMBEDDING,
)
