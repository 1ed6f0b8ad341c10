"""StableLM (Bellagente et al., 2024, arXiv:2402.17834)."""

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
from xformer_kit.hub.keys import Functions, Key, Values
from xformer_kit.hub.weights import Weight, linear


def head_norms(config: Values) -> dict:
    """Norms of queries and keys in each head, which have no biases (StableLM 2 12B)."""
    if not config.get("qk_layernorm", False):
        return {"attn.qk_norm": "none"}
    return {"attn.qk_norm": {"name": "each_head", "bias": False}}


def head_norm_key(values: Values) -> dict:
    """The same as a key of a config.json."""
    return {"qk_layernorm": values["attn.qk_norm.name"] != "none"}


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
        Functions(("qk_layernorm",), head_norms, head_norm_key),
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
        *(
            Weight(
                f"{LAYER}.self_attn.{n}_layernorm.norms.{{h}}.weight",
                f"decoder.{{i}}.attn.{n}_norm.{{h}}.weight",
            )
            for n in "qk"
        ),
    ),
    tied=HEAD_IS_EMBEDDING,
)
