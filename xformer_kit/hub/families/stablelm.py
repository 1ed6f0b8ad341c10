"""StableLM (Bellagente et al., 2024, arXiv:2402.17834). The norms of queries and keys of the 12B
model have no biases, unlike its other norms, and cannot be composed.
"""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LAYER,
    LLAMA_WEIGHTS,
    activation,
    is_parallel,
    length,
    parallel_layout,
    query_key_value_bias,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key
from xformer_kit.hub.weights import linear

FAMILY = Family(
    preset="stablelm",
    architectures=("StableLmForCausalLM",),
    keys=(
        *sizes(),
        length(4096),
        Key("num_key_value_heads", "attn.kv_heads", 32),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "silu"),
        Key("layer_norm_eps", "norm.eps", 1e-5),
        query_key_value_bias("use_qkv_bias", False),
        Fixed("qk_layernorm", False),
        Functions(
            ("use_parallel_residual",),
            lambda config: parallel_layout(config.get("use_parallel_residual", False)),
            lambda values: {"use_parallel_residual": is_parallel(values)},
        ),
        rope(fraction=0.25),
        tied(False),
    ),
    weights=(
        *linear(f"{LAYER}.input_layernorm", "decoder.{i}.placement.attn_ffn.norm.0"),
        *LLAMA_WEIGHTS,
    ),
    tied=HEAD_IS_EMBEDDING,
)
