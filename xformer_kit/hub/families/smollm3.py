"""SmolLM3 (Bakouch et al., 2025, Hugging Face)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    LLAMA_WEIGHTS,
    decoder_keys,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values
from xformer_kit.hub.layer_kinds import (
    WINDOW_KEYS,
    layer_options,
    layers_with,
    window_keys,
    windows,
)

SWITCH = "use_sliding_window"
ROPE_LAYERS = ("no_rope_layers", "no_rope_layer_interval")


def without_rope(config: Values) -> list[bool]:
    """Whether each layer has no position; the list in the file has 1 for those that rotate."""
    count, every = config["num_hidden_layers"], config.get("no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers") or [at % every != 0 for at in range(1, count + 1)]
    return [not one for one in rotated[:count]]


def default_windows(config: Values) -> list[bool]:
    """Whether each layer of a file without layer_types has a window."""
    used = bool(config.get(SWITCH)) and config.get("sliding_window") is not None
    return [used and one for one in without_rope(config)]


def read_layers(config: Values) -> dict:
    """Which layers have no position, and which have a window."""
    has, window = windows(config, default_windows, None, SWITCH)
    respects = {"nope": without_rope(config), "local": has}
    return layer_options(respects, {"nope": {"position": {"name": "none"}}, "local": window})


def write_layers(values: Values) -> dict:
    """The same as keys of a config.json."""
    rotated = [int(not one) for one in layers_with(values, "nope")]
    return {"no_rope_layers": rotated, **window_keys(values, SWITCH)}


FAMILY = Family(
    preset="smollm3",
    architectures=("SmolLM3ForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=4, positions=32_768, theta=2e6, tie=True),
        Key("attention_bias", "attn.bias", False),
        Key("mlp_bias", "ffn.bias", False),
        Functions((*ROPE_LAYERS, *WINDOW_KEYS, SWITCH), read_layers, write_layers),
        unread("max_window_layers"),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
