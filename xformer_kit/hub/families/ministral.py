"""Ministral (Mistral AI, 2024)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    KINDS,
    LLAMA_WEIGHTS,
    LOCAL,
    decoder_keys,
    layer_types,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Values, refuse

LAYER_KEYS = ("layer_types", "sliding_window")


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    kind = "full_attention" if window(config) is None else "sliding_attention"
    return [kind] * config["num_hidden_layers"]


def window(config: Values) -> int | None:
    """The window of the layers that have one."""
    return config.get("sliding_window", 4096)


LAYER_TYPES = layer_types(KINDS, kinds)


def read_layers(config: Values) -> dict:
    """Layers with a window, if there are any."""
    found = LAYER_TYPES.read(config)
    if "local" not in found["model.decoder.pattern"]:
        return {"model.decoder.pattern": None, "model.decoder.variants": None}
    if window(config) is None:
        raise refuse("layer_types", "sliding_attention", "needs sliding_window")
    return {**found, f"{LOCAL}.mask.window": window(config)}


def write_layers(values: Values) -> dict:
    """The same as keys of a config.json. The class needs a window, also if no layer has it."""
    size = values.get(f"{LOCAL}.mask.window", 4096)
    return {**LAYER_TYPES.write(values), "sliding_window": size}


FAMILY = Family(
    preset="ministral",
    architectures=("MinistralForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=8, positions=131_072),
        Functions(LAYER_KEYS, read_layers, write_layers),
    ),
    weights=LLAMA_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
