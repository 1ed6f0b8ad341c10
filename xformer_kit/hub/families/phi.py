"""Phi-1, 1.5 and 2 (Gunasekar et al., 2023, arXiv:2306.11644; Li et al., 2023,
arXiv:2309.05463).
"""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    activation,
    fully_connected,
    length,
    projections,
    query_key_norm,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import Weight, linear

HERE = "decoder.{i}"
FAMILY = Family(
    preset="phi",
    architectures=("PhiForCausalLM",),
    keys=(
        *sizes(),
        length(2048),
        Key("num_key_value_heads", "attn.kv_heads", None),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "gelu_new"),
        Key("layer_norm_eps", "norm.eps", 1e-5),
        query_key_norm("qk_layernorm"),
        rope(fraction=0.5),
        tied(False),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        *linear("lm_head", "head"),
        *linear("model.final_layernorm", "decoder.norm"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn_ffn.norm.0"),
        *projections(f"{LAYER}.self_attn", out="dense"),
        *linear(f"{LAYER}.self_attn.q_layernorm", f"{HERE}.attn.q_norm"),
        *linear(f"{LAYER}.self_attn.k_layernorm", f"{HERE}.attn.k_norm"),
        *fully_connected(f"{LAYER}.mlp", "fc1", "fc2"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
