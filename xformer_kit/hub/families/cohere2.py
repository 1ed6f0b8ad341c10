"""Command R7B and Command A (Cohere, 2025, arXiv:2504.00698)."""

from xformer_kit.hub.common import HEAD_IS_EMBEDDING, pattern_options, rope, unread
from xformer_kit.hub.families.cohere import COHERE_KEYS, COHERE_WEIGHTS
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values, refuse, unsupported

KINDS = {"sliding_attention": "base", "full_attention": "full"}
PATTERN = "sliding_window_pattern"
UNREAD = (
    *("cache_implementation", "layer_switch", "order_of_interleaved_layers", "rotary_pct"),
    *("position_embedding_type", "use_embedding_sharing", "use_gated_activation"),
    *("use_parallel_block", "use_parallel_embedding"),
)


def layers(config: Values) -> dict:
    """The layers with a window, which rotate queries and keys, and those without both."""
    every = range(1, config.get("num_hidden_layers", 40) + 1)
    kinds = config.get("layer_types") or [
        "full_attention" if at % config.get(PATTERN, 4) == 0 else "sliding_attention"
        for at in every
    ]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unsupported("layer_types", unknown[0], KINDS)
    if (window := config.get("sliding_window", 4096)) is None:
        raise refuse("sliding_window", window, "must be a number of tokens")
    return {"mask.window": window, **pattern_options([KINDS[kind] for kind in kinds], {})}


def layer_keys(values: Values) -> dict:
    """The kind of each layer, and the window."""
    kinds = {own: kind for kind, own in KINDS.items()}
    order = [kinds[variant] for variant in values["model.decoder.order"]]
    return {"layer_types": order, "sliding_window": values["mask.window"]}


FAMILY = Family(
    preset="cohere2",
    architectures=("Cohere2ForCausalLM",),
    keys=(
        *COHERE_KEYS,
        rope(),
        Key("head_dim", "attn.head_dim", None),
        Functions(("layer_types", "sliding_window", PATTERN), layers, layer_keys),
        unread(*UNREAD),
    ),
    weights=COHERE_WEIGHTS,
    tied=HEAD_IS_EMBEDDING,
)
