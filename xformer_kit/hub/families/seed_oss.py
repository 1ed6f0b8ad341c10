"""Seed-OSS (ByteDance Seed, 2025)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, LLAMA_WEIGHTS, decoder_keys
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values

BIAS_KEYS = ("attention_bias", "attention_out_bias")
# Values of both keys -> attn.bias.
BIASES: dict[tuple[bool, bool], bool | list[str]] = {
    (True, False): ["q", "k", "v"],
    (True, True): True,
    (False, True): ["o"],
    (False, False): False,
}


def read_biases(config: Values) -> dict:
    """Which projections have biases."""
    pair = config.get(BIAS_KEYS[0], True), config.get(BIAS_KEYS[1], False)
    return {"attn.bias": BIASES[pair]}


def write_biases(values: Values) -> dict:
    """Both keys; the defaults of both if no pair has these biases. The file then differs from the
    composition, which is refused.
    """
    found = (pair for pair, own in BIASES.items() if own == values["attn.bias"])
    pair = next(found, (True, False))
    return dict(zip(BIAS_KEYS, pair, strict=True))


FAMILY = Family(
    preset="seed_oss",
    architectures=("SeedOssForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=8, head_dim=128, positions=524_288),
        Functions(BIAS_KEYS, read_biases, write_biases),
        Key("mlp_bias", "ffn.bias", False),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
