"""gpt-oss (OpenAI, 2025, arXiv:2508.10925)."""

import torch

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    ROPE_KEYS,
    length,
    pattern_options,
    position_options,
    projections,
    rope_node,
    rope_settings,
    sizes,
    tied,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, unsupported
from xformer_kit.hub.layouts import TRANSPOSED, Layout
from xformer_kit.hub.weights import Weight, linear

HERE = "decoder.{i}"
EXPERTS, THEIR_EXPERTS = f"{HERE}.ffn.experts", f"{LAYER}.mlp.experts"
KINDS = {"sliding_attention": "local", "full_attention": "base"}
WINDOW = "local.mask.window"
# Rotary positions of a file without them.
ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


class Columns(Layout):
    """The columns of gate and up in turn, along the last axis, with inputs before outputs."""

    def read(self, tensors, rows, heads):
        return [transposed(tensors[0][..., at::2]) for at in range(2)]

    def write(self, tensors, heads):
        return [torch.stack([transposed(one) for one in tensors], -1).flatten(-2)]


def transposed(x: torch.Tensor) -> torch.Tensor:
    """(experts, in, out) -> (experts, out, in); biases (experts, out) as they are."""
    return x.mT if x.ndim == 3 else x


def layers(config: Values) -> dict:
    """The kind of each layer, and the window of every second one."""
    count = config.get("num_hidden_layers", 36)
    kinds = config.get("layer_types") or [list(KINDS)[at % 2] for at in range(count)]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unsupported("layer_types", unknown[0], KINDS)
    window = config.get("sliding_window", 128)
    return pattern_options([KINDS[kind] for kind in kinds], {WINDOW: window})


def layer_keys(values: Values) -> dict:
    """The kind of each layer, and the window."""
    kinds = {own: kind for kind, own in KINDS.items()}
    order = [kinds[variant] for variant in values["model.decoder.order"]]
    window = values.get(f"model.decoder.variants.{WINDOW}", 128)
    return {"layer_types": order, "sliding_window": window}


def read_rope(config: Values) -> dict:
    """Rotary positions."""
    has = config.get("rope_parameters") or config.get("rope_scaling")
    settings = config if has else {**config, "rope_parameters": ROPE}
    return position_options(rope_settings(settings, 150_000.0))


FAMILY = Family(
    preset="gpt_oss",
    architectures=("GptOssForCausalLM",),
    keys=(
        *sizes(),
        length(131_072),
        Key("num_key_value_heads", "attn.kv_heads", 8),
        Key("head_dim", "attn.head_dim", 64),
        Key("rms_norm_eps", "norm.eps", 1e-5),
        Key("attention_bias", "attn.bias", True),
        Key("intermediate_size", "ffn.width", 2880),
        Key("num_local_experts", "ffn.experts", 128, also=("num_experts",)),
        Key("num_experts_per_tok", "ffn.top_k", 4, also=("experts_per_token",)),
        Key("swiglu_limit", "ffn.expert.clamp", 7.0),
        Fixed("swiglu_alpha", 1.702),
        Fixed("hidden_act", "silu", "swish"),
        Functions(("layer_types", "sliding_window"), layers, layer_keys),
        Functions(ROPE_KEYS, read_rope, lambda values: {"rope_parameters": rope_node(values)}),
        unread("initial_context_length"),
        tied(False),
    ),
    weights=(
        *EMBEDDING_AND_HEAD,
        *PRE_NORMS,
        *projections(f"{LAYER}.self_attn"),
        Weight(f"{LAYER}.self_attn.sinks", f"{HERE}.attn.score.sink"),
        *linear(f"{LAYER}.mlp.router", f"{HERE}.ffn.router"),
        *(
            Weight(
                f"{THEIR_EXPERTS}.gate_up_proj{theirs}",
                (f"{EXPERTS}.gate.{ours}", f"{EXPERTS}.up.{ours}"),
                Columns(),
            )
            for theirs, ours in (("", "weight"), ("_bias", "bias"))
        ),
        Weight(f"{THEIR_EXPERTS}.down_proj", f"{EXPERTS}.down.weight", TRANSPOSED),
        Weight(f"{THEIR_EXPERTS}.down_proj_bias", f"{EXPERTS}.down.bias"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
