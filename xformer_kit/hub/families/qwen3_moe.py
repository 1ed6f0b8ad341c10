"""Qwen3 with experts (Yang et al., 2025, arXiv:2505.09388)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, unread, window
from xformer_kit.hub.families.qwen2_moe import DENSE, SPARSE_WEIGHTS, sparse_keys
from xformer_kit.hub.families.qwen3 import QK_NORMS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

FAMILY = Family(
    preset="qwen3_moe",
    architectures=("Qwen3MoeForCausalLM",),
    keys=(
        *sparse_keys(128, 8, 768, 4, DENSE, also="num_local_experts"),
        Key("attention_bias", "attn.bias", False),
        window(4096, "use_sliding_window"),
        unread("max_window_layers"),
    ),
    weights=(*SPARSE_WEIGHTS, *QK_NORMS),
    tied=HEAD_IS_EMBEDDING,
)
