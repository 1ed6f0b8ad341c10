"""SmolLM3 (Bakouch et al., 2025, Hugging Face)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LLAMA_WEIGHTS,
    all_are,
    decoder_keys,
    shortest_period,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values

ROPE_LAYERS = ("no_rope_layers", "no_rope_layer_interval")


def read_layers(config: Values) -> dict:
    """Which layers have rotary positions; the list has 1 for those that do."""
    count, every = config["num_hidden_layers"], config.get("no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers") or [at % every != 0 for at in range(1, count + 1)]
    names = ["base" if one else "nope" for one in rotated[:count]]
    if "nope" not in names:
        return {"model.decoder.pattern": None, "model.decoder.variants": None}
    return {"model.decoder.pattern": shortest_period(names)}


def write_layers(values: Values) -> dict:
    """The same as a key of a config.json."""
    return {"no_rope_layers": [int(name == "base") for name in values["model.decoder.order"]]}


FAMILY = Family(
    preset="smollm3",
    architectures=("SmolLM3ForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=4, positions=32_768, theta=2e6, tie=True),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
        Functions(ROPE_LAYERS, read_layers, write_layers),
        Fixed("use_sliding_window", False),
        all_are("full_attention"),
        unread("sliding_window", "max_window_layers"),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
