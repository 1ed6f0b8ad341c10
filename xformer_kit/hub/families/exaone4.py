"""EXAONE 4.0 (LG AI Research, 2025, arXiv:2507.11407)."""

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    LOCAL,
    OUTPUT_NORMS,
    all_are,
    decoder_keys,
    gated_ffn,
    layer_types,
    projections,
)
from xformer_kit.hub.families.qwen3 import QK_NORMS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Values, refuse

LAYER_KEYS = ("layer_types", "sliding_window", "sliding_window_pattern")
# If some layers have a window, the others have no positions.
KINDS = {"sliding_attention": "local", "full_attention": "nope"}


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    every = config.get("sliding_window_pattern", 4)
    if not isinstance(every, int):
        raise refuse("sliding_window_pattern", every, "must be a number without layer_types")
    layers = range(1, config["num_hidden_layers"] + 1)
    return ["sliding_attention" if at % every else "full_attention" for at in layers]


LAYER_TYPES = layer_types(KINDS, kinds)


def read_layers(config: Values) -> dict:
    """Layers with a window, and those without positions; without a window all are equal."""
    window = config.get("sliding_window", 4096)
    if window is None:
        all_are("full_attention").read(config)
        return {"model.decoder.pattern": None, "model.decoder.variants": None}
    return {**LAYER_TYPES.read(config), f"{LOCAL}.mask.window": window}


def write_layers(values: Values) -> dict:
    """The same as keys of a config.json."""
    window = values.get(f"{LOCAL}.mask.window")
    count = len(values["model.decoder.order"])
    if window is None:
        return {"sliding_window": None, "layer_types": ["full_attention"] * count}
    return {"sliding_window": window, **LAYER_TYPES.write(values)}


FAMILY = Family(
    preset="exaone4",
    architectures=("Exaone4ForCausalLM",),
    keys=(
        *decoder_keys(kv_heads=32, eps=1e-5),
        Functions(LAYER_KEYS, read_layers, write_layers),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *OUTPUT_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *gated_ffn(f"{LAYER}.mlp"),
        *QK_NORMS,
    ),
    tied=HEAD_IS_EMBEDDING,
)
