"""Mixtral (Jiang et al., 2024, arXiv:2401.04088)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    SILU_OF_EXPERTS,
    decoder_keys,
    experts,
    projections,
    window,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import Weight

FAMILY = Family(
    preset="mixtral",
    architectures=("MixtralForCausalLM",),
    keys=(
        *decoder_keys(
            kv_heads=8,
            activated=SILU_OF_EXPERTS,
            eps=1e-5,
            positions=131_072,
            theta=1e6,
        ),
        Key("num_local_experts", "ffn.experts", 8, also=("num_experts",)),
        Key("num_experts_per_tok", "ffn.top_k", 2),
        window(None),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *experts(f"{LAYER}.block_sparse_moe.experts", ("w1", "w3", "w2")),
        Weight(f"{LAYER}.block_sparse_moe.gate.weight", "decoder.{i}.ffn.router.weight"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
