"""StarCoder2 (Lozhkov et al., 2024, arXiv:2402.19173)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    decoder_keys,
    projections,
    window,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key
from xformer_kit.hub.weights import linear

FAMILY = Family(
    preset="starcoder2",
    architectures=("Starcoder2ForCausalLM",),
    keys=(
        *decoder_keys(
            kv_heads=2,
            activated=activation("hidden_act", "gelu_pytorch_tanh"),
            eps=Key("norm_epsilon", "norm.eps", 1e-5),
            positions=4096,
            tie=True,
        ),
        Functions(
            ("use_bias",),
            lambda config: dict.fromkeys(("attn.bias", "ffn.bias"), config.get("use_bias", True)),
            lambda values: {"use_bias": values["ffn.bias"]},
        ),
        window(None),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *linear(f"{LAYER}.mlp.c_fc", "decoder.{i}.ffn.up"),
        *linear(f"{LAYER}.mlp.c_proj", "decoder.{i}.ffn.down"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
