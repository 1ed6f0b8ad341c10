"""ERNIE 4.5 (Baidu, 2025, https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf), the
dense model.
"""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LLAMA_WEIGHTS,
    activation,
    all_biases,
    length,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key

FAMILY = Family(
    preset="ernie4_5",
    architectures=("Ernie4_5ForCausalLM",),
    keys=(
        *sizes(),
        length(131_072),
        Key("num_key_value_heads", "attn.kv_heads", 2),
        Key("head_dim", "attn.head_dim", 128),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "silu"),
        Key("rms_norm_eps", "norm.eps", 1e-5),
        all_biases("use_bias", False),
        rope(500_000.0),
        tied(True),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
