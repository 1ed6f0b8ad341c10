"""Qwen2 and Qwen2.5 (Yang et al., 2024, arXiv:2407.10671 and arXiv:2412.15115)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    KINDS,
    LLAMA_WEIGHTS,
    LOCAL,
    decoder_keys,
    layer_types,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Values, refuse

WINDOW_KEYS = ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers")


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    used = config.get("use_sliding_window") and config.get("sliding_window", 4096)
    first = config.get("max_window_layers", 28) if used else config["num_hidden_layers"]
    layers = range(config["num_hidden_layers"])
    return ["sliding_attention" if at >= first else "full_attention" for at in layers]


LAYER_TYPES = layer_types(KINDS, kinds)


def read_windows(config: Values) -> dict:
    """Layers with a window, if there are any."""
    found = LAYER_TYPES.read(config)
    if "local" not in found["model.decoder.pattern"]:
        return {}
    size = config.get("sliding_window", 4096) if config.get("use_sliding_window") else None
    if not size:
        raise refuse("layer_types", "sliding_attention", "needs use_sliding_window=true")
    return {**found, f"{LOCAL}.mask": {"name": "sliding_window", "window": size}}


def write_windows(values: Values) -> dict:
    """The same as keys of a config.json."""
    size = values.get(f"{LOCAL}.mask.window")
    used = {"sliding_window": size, "use_sliding_window": size is not None}
    return {**LAYER_TYPES.write(values), **used}


WINDOWS = Functions(WINDOW_KEYS, read_windows, write_windows)
FAMILY = Family(
    preset="qwen2",
    architectures=("Qwen2ForCausalLM",),
    keys=(*decoder_keys(kv_heads=32, positions=32_768), WINDOWS, unread("use_mrope")),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
