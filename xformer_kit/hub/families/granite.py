"""Granite 3 (IBM, 2024), whose four factors are those of Power (Shen et al., 2024,
arXiv:2408.13359).
"""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key, NumberKey


def inverse(number: float) -> float:
    """1 / number, so rounded that the inverse of the inverse is the number."""
    return float(f"{1 / number:.15g}")


GRANITE_FACTORS = (
    NumberKey("embedding_multiplier", "model.embed_scale", 1.0),
    NumberKey("residual_multiplier", "model.residual_multiplier", 1.0),
    NumberKey("attention_multiplier", "attn.scale", 1.0),
    NumberKey("logits_scaling", "model.logit_scale", 1.0, lambda x: 1 / x, inverse),
)
FAMILY = Family(
    preset="granite",
    architectures=("GraniteForCausalLM",),
    keys=(
        *decoder_keys(),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
        *GRANITE_FACTORS,
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
