"""Helium 1 (Kyutai, 2025)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Key

QKV_BIAS = {True: ["q", "k", "v"], False: False}
FAMILY = Family(
    preset="helium",
    architectures=("HeliumForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=20, head_dim=128, eps=1e-8, positions=4096, theta=1e5),
        Choice("attention_bias", "attn.bias", QKV_BIAS, False),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
