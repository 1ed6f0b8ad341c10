"""Granite 3 with experts (IBM, 2024; Power: Shen et al., 2024, arXiv:2408.13359)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    SILU_OF_EXPERTS,
    decoder_keys,
    projections,
)
from xformer_kit.hub.families.granite import GRANITE_FACTORS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.layouts import CONCATENATED_OUTPUTS
from xformer_kit.hub.weights import Weight

THEIRS, OURS = f"{LAYER}.block_sparse_moe", "decoder.{i}.ffn"
FAMILY = Family(
    preset="granitemoe",
    architectures=("GraniteMoeForCausalLM",),
    keys=(
        *decoder_keys(activated=SILU_OF_EXPERTS),
        Key("attention_bias", "attn.bias", False),
        Key("num_local_experts", "ffn.experts", 8),
        Key("num_experts_per_tok", "ffn.top_k", 2),
        *GRANITE_FACTORS,
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        Weight(
            f"{THEIRS}.input_linear.weight",
            (f"{OURS}.experts.gate.weight", f"{OURS}.experts.up.weight"),
            CONCATENATED_OUTPUTS,
        ),
        Weight(f"{THEIRS}.output_linear.weight", f"{OURS}.experts.down.weight"),
        Weight(f"{THEIRS}.router.layer.weight", f"{OURS}.router.weight"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
