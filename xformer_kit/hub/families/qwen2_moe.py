"""Qwen1.5-MoE and Qwen2-MoE (Yang et al., 2024, arXiv:2407.10671, section 2.2.2)."""

from xformer_kit.hub.common import (
    ACTIVATIONS,
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    SILU_OF_EXPERTS,
    all_are,
    decoder_keys,
    experts,
    gated_ffn,
    projections,
    shortest_period,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Choice, Entry, Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.weights import Weight

DENSE = "model.decoder.variants.dense.ffn"
EXPERT_WIDTH, SHARED_WIDTH = "moe_intermediate_size", "shared_expert_intermediate_size"


def read_dense(config: Values) -> dict:
    """Layers without experts, if there are any."""
    listed, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)
    layers = range(config["num_hidden_layers"])
    names = ["dense" if at in listed or (at + 1) % step else "base" for at in layers]
    if "dense" not in names:
        return {}
    activation = ACTIVATIONS.get(config.get("hidden_act", "silu"))
    node = {"name": "glu", "width": config["intermediate_size"], "activation": activation}
    return {"model.decoder.pattern": shortest_period(names), DENSE: node}


def write_dense(values: Values) -> dict:
    """The same as keys of a config.json."""
    dense = [at for at, name in enumerate(values["model.decoder.order"]) if name == "dense"]
    width = values.get(f"{DENSE}.width", values["ffn.width"])
    return {"mlp_only_layers": dense, "intermediate_size": width}


def read_shared(config: Values) -> dict:
    """The number of shared experts, from the width of their network."""
    width, one = config.get(SHARED_WIDTH, 5632), config.get(EXPERT_WIDTH, 1408)
    if width % one or not width:
        raise refuse(SHARED_WIDTH, width, f"must be a multiple of {EXPERT_WIDTH}={one}")
    return {"ffn.shared": width // one}


def sparse_keys(
    experts: int, top_k: int, width: int, kv_heads: int, also: str = ""
) -> tuple[Entry, ...]:
    """The keys of a decoder with experts. also: another name of num_experts."""
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
        Functions(
            ("mlp_only_layers", "decoder_sparse_step", "intermediate_size"), read_dense, write_dense
        ),
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
        *sparse_keys(60, 4, 1408, 16),
        Choice("qkv_bias", "attn.bias", {True: ["q", "k", "v"], False: False}, True),
        Functions(
            (SHARED_WIDTH,),
            read_shared,
            lambda values: {SHARED_WIDTH: values["ffn.shared"] * values["ffn.width"]},
        ),
        Fixed("use_sliding_window", False),
        all_are("full_attention"),
        unread("sliding_window", "max_window_layers"),
    ),
    weights=(
        *SPARSE_WEIGHTS,
        *gated_ffn(f"{LAYER}.mlp.shared_expert", "decoder.{i}.ffn.shared"),
        Weight(f"{LAYER}.mlp.shared_expert_gate.weight", "decoder.{i}.ffn.shared_gate.weight"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
