"""Nemotron-4 and Minitron (Parmar et al., 2024, arXiv:2402.16819)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    activation,
    decoder_keys,
    fully_connected,
    projections,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import Weight

# Norms, whose gains are 1 + weight.
NORMS = {
    "model.norm": "decoder.norm",
    f"{LAYER}.input_layernorm": "decoder.{i}.placement.attn.norm.0",
    f"{LAYER}.post_attention_layernorm": "decoder.{i}.placement.ffn.norm.0",
}
FAMILY = Family(
    preset="nemotron",
    architectures=("NemotronForCausalLM",),
    keys=(
        *decoder_keys(
            activated=activation("hidden_act", "relu2"),
            eps=Key("norm_eps", "norm.eps", 1e-5),
            positions=4096,
            fraction=0.5,
        ),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *(Weight(f"{theirs}.weight", f"{ours}.offset") for theirs, ours in NORMS.items()),
        *(Weight(f"{theirs}.bias", f"{ours}.bias") for theirs, ours in NORMS.items()),
        *projections(f"{LAYER}.self_attn"),
        *fully_connected(f"{LAYER}.mlp", "up_proj", "down_proj"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
