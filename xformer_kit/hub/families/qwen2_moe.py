"""Qwen1.5-MoE and Qwen2-MoE (Yang et al., 2024, arXiv:2407.10671, section 2.2.2)."""

from xformer_kit.hub.common import (
    ACTIVATIONS,
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    SILU_OF_EXPERTS,
    decoder_keys,
    experts,
    gated_ffn,
    projections,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Entry, Functions, Key, Values, refuse
from xformer_kit.hub.layer_kinds import (
    WINDOW_KEYS,
    layer_options,
    layers_with,
    option_of,
    window_keys,
    windows,
)
from xformer_kit.hub.weights import Weight

SWITCH, LAST = "use_sliding_window", "max_window_layers"
DENSE_KEYS = ("mlp_only_layers", "decoder_sparse_step", "intermediate_size")
EXPERT_WIDTH, SHARED_WIDTH = "moe_intermediate_size", "shared_expert_intermediate_size"


def is_dense(config: Values) -> list[bool]:
    """Whether each layer has no experts."""
    listed, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)
    return [at in listed or bool((at + 1) % step) for at in range(config["num_hidden_layers"])]


def dense_network(config: Values) -> dict:
    """The options of layers without experts."""
    activation = ACTIVATIONS.get(config.get("hidden_act", "silu"))
    width = config.get("intermediate_size", config.get(EXPERT_WIDTH))
    return {"ffn": {"name": "glu", "width": width, "activation": activation}}


def read_dense(config: Values) -> dict:
    """Layers without experts, if there are any."""
    return layer_options({"dense": is_dense(config)}, {"dense": dense_network(config)})


def write_dense(values: Values) -> dict:
    """The same as keys of a config.json."""
    dense = [at for at, one in enumerate(layers_with(values, "dense")) if one]
    width = option_of(values, "dense", "ffn.width") or values["ffn.width"]
    return {"mlp_only_layers": dense, "intermediate_size": width}


def every_other_window(config: Values) -> list[bool]:
    """Whether each layer of a file without layer_types has a window."""
    layers, last = range(config["num_hidden_layers"]), config.get(LAST, 28)
    return [bool(config.get(SWITCH)) and at % 2 == 0 and at < last for at in layers]


def read_layers(config: Values) -> dict:
    """Layers without experts, and layers with a window."""
    has, window = windows(config, every_other_window, 4096, SWITCH)
    options = {"dense": dense_network(config), "local": window}
    return layer_options({"dense": is_dense(config), "local": has}, options)


def write_layers(values: Values) -> dict:
    """The same as keys of a config.json."""
    return {**write_dense(values), **window_keys(values, SWITCH)}


def read_shared(config: Values) -> dict:
    """The number of shared experts, from the width of their network."""
    width, one = config.get(SHARED_WIDTH, 5632), config.get(EXPERT_WIDTH, 1408)
    if width % one or not width:
        raise refuse(SHARED_WIDTH, width, f"must be a multiple of {EXPERT_WIDTH}={one}")
    return {"ffn.shared": width // one}


DENSE = Functions(DENSE_KEYS, read_dense, write_dense)
LAYERS = Functions((*DENSE_KEYS, *WINDOW_KEYS, SWITCH, LAST), read_layers, write_layers)


def sparse_keys(
    experts: int, top_k: int, width: int, kv_heads: int, layers: Functions, also: str = ""
) -> tuple[Entry, ...]:
    """The keys of a decoder with experts. layers: kinds of layers. also: another name of
    num_experts.
    """
    return (
        *decoder_keys(
            kv_heads=kv_heads,
            width=Key(EXPERT_WIDTH, "ffn.width", width),
            activated=SILU_OF_EXPERTS,
            positions=32_768,
        ),
        Key("num_experts", "ffn.experts", experts, also=(also,) if also else ()),
        Key("num_experts_per_tok", "ffn.top_k", top_k),
        Key("norm_topk_prob", "ffn.router.renormalise", False),
        layers,
    )


SPARSE_WEIGHTS = (
    *EMBEDDING_AND_HEAD,
    *PRE_NORMS,
    *projections(f"{LAYER}.self_attn"),
    *gated_ffn(f"{LAYER}.mlp"),
    *experts(f"{LAYER}.mlp.experts"),
    Weight(f"{LAYER}.mlp.gate.weight", "decoder.{i}.ffn.router.weight"),
)
FAMILY = Family(
    preset="qwen2_moe",
    architectures=("Qwen2MoeForCausalLM",),
    keys=(
        *sparse_keys(60, 4, 1408, 16, LAYERS),
        Choice("qkv_bias", "attn.bias", {True: ["q", "k", "v"], False: False}, True),
        Functions(
            (SHARED_WIDTH,),
            read_shared,
            lambda values: {SHARED_WIDTH: values["ffn.shared"] * values["ffn.width"]},
        ),
    ),
    weights=(
        *SPARSE_WEIGHTS,
        *gated_ffn(f"{LAYER}.mlp.shared_expert", "decoder.{i}.ffn.shared"),
        Weight(f"{LAYER}.mlp.shared_expert_gate.weight", "decoder.{i}.ffn.shared_gate.weight"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
