"""BioGPT (Luo et al., 2022, arXiv:2210.10341)."""

from xformer_kit.hub.common import (
    activation,
    fully_connected,
    length,
    projections,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.stacks import scale_embedding
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "decoder.{i}", "biogpt.layers.{i}"
FAMILY = Family(
    preset="biogpt",
    architectures=("BioGptForCausalLM",),
    keys=(
        *sizes(),
        length(1024),
        Key("intermediate_size", "ffn.width", 4096),
        activation("hidden_act", "gelu"),
        scale_embedding(True),
        tied(True),
        unread("layer_norm_eps"),  # norms have that of torch, 1e-5
    ),
    weights=(
        Weight("biogpt.embed_tokens.weight", "embed.weight"),
        Weight("biogpt.embed_positions.weight", "decoder.position.base.weight"),
        Weight("output_projection.weight", "head.weight"),
        *linear("biogpt.layer_norm", "decoder.norm"),
        *linear(f"{LAYER}.self_attn_layer_norm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.final_layer_norm", f"{HERE}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.self_attn", out="out_proj"),
        *fully_connected(LAYER, "fc1", "fc2"),
    ),
    tied=(("output_projection.weight", "biogpt.embed_tokens.weight"),),
)
