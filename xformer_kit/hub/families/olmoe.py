"""OLMoE (Muennighoff et al., 2024, arXiv:2409.02060)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, SILU_OF_EXPERTS, decoder_keys
from xformer_kit.hub.families.olmo2 import QK_NORMS
from xformer_kit.hub.families.qwen2_moe import SPARSE_WEIGHTS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values


def clip(config: Values) -> dict:
    """A bound of queries, keys and values, after the norms of queries and keys."""
    bound = config.get("clip_qkv")
    return {"attn.clip": bound, "attn.clip_normed": bound is not None}


FAMILY = Family(
    preset="olmoe",
    architectures=("OlmoeForCausalLM",),
    keys=(
        *decoder_keys(activated=SILU_OF_EXPERTS, eps=1e-5, positions=4096),
        Key("attention_bias", "attn.bias", False),
        Key("num_experts", "ffn.experts", 64, also=("num_local_experts",)),
        Key("num_experts_per_tok", "ffn.top_k", 8),
        Key("norm_topk_prob", "ffn.router.renormalise", False),
        Functions(("clip_qkv",), clip, lambda values: {"clip_qkv": values["attn.clip"]}),
    ),
    weights=(*SPARSE_WEIGHTS, *QK_NORMS),
    tied=HEAD_IS_EMBEDDING,
)
