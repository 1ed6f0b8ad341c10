"""OLMo 3 (Olmo Team, 2025, arXiv:2512.13961)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    KINDS,
    LOCAL,
    ROPE_KEYS,
    decoder_keys,
    layer_types,
    rope_of_kinds,
    write_rope_of_kinds,
)
from xformer_kit.hub.families.olmo2 import OLMO2_WEIGHTS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values

PATHS = {"full_attention": "position", "sliding_attention": f"{LOCAL}.position"}


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    layers = range(1, config["num_hidden_layers"] + 1)
    return ["sliding_attention" if at % 4 else "full_attention" for at in layers]


def read_rope(config: Values) -> dict:
    """Rotary positions; a scaling in a file before transformers 5 is that of full attention."""
    plain = {key: value for key, value in config.items() if key != "rope_parameters"}
    local = {key: value for key, value in plain.items() if key != "rope_scaling"}
    old = {"full_attention": plain, "sliding_attention": local}
    return rope_of_kinds(config, PATHS, dict.fromkeys(PATHS, 5e5), old)


FAMILY = Family(
    preset="olmo3",
    architectures=("Olmo3ForCausalLM",),
    keys=(
        *(key for key in decoder_keys(eps=1e-5) if "rope_parameters" not in key.keys),
        Key("attention_bias", "attn.bias", False),
        Key("sliding_window", f"{LOCAL}.mask.window", 4096),
        layer_types(KINDS, kinds),
        Functions(ROPE_KEYS, read_rope, lambda values: write_rope_of_kinds(values, PATHS)),
    ),
    weights=OLMO2_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
