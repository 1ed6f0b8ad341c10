"""Falcon (Almazrouei et al., 2023, arXiv:2311.16867): the 7B form with one key head, the 40B form
with two norms, and the RW form with ALiBi.
"""

from xformer_kit.hub.common import (
    ROPE_KEYS,
    activation,
    fully_connected,
    is_parallel,
    length,
    parallel_layout,
    position_options,
    rope_node,
    rope_settings,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.layouts import PER_HEAD
from xformer_kit.hub.weights import Weight, fused, linear

HERE, LAYER = "decoder.{i}", "transformer.h.{i}"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")
NEW = "new_decoder_architecture"
FORM_KEYS = (NEW, "multi_query", "parallel_attn", "num_kv_heads", "num_ln_in_parallel_attn")


def form(config: Values) -> dict:
    """Key heads and norms of the three forms."""
    new, parallel = config.get(NEW, False), config.get("parallel_attn", True)
    norms = config.get("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not parallel:
        raise refuse("parallel_attn", False, f"must be true with {NEW}")
    if norms not in ((1, 2) if new else (1,)):
        rule = f"must be 1, or 2 with {NEW}"
        raise refuse("num_ln_in_parallel_attn", norms, rule)
    kv_heads = config.get("num_kv_heads") if new else None
    if not new and config.get("multi_query", True):
        kv_heads = 1
    return {"attn.kv_heads": kv_heads, **parallel_layout(parallel, shared=norms == 1)}


def form_keys(values: Values) -> dict:
    """The keys of the form: the new one for several key heads, or two norms."""
    heads, kv_heads = values["attn.heads"], values["attn.kv_heads"]
    two_norms = not values["placement.shared"]
    return {
        NEW: two_norms or kv_heads not in (1, heads),
        "multi_query": kv_heads == 1,
        "parallel_attn": is_parallel(values),
        "num_kv_heads": kv_heads,
        "num_ln_in_parallel_attn": 2 if two_norms else 1,
    }


def position(config: Values) -> dict:
    """Rotary positions, or ALiBi, which is added before scores are scaled."""
    if not config.get("alibi", False):
        return {"position": "rotary", **position_options(rope_settings(config, 10_000.0))}
    heads, dim = config["num_attention_heads"], config.get("n_embed", config["hidden_size"])
    return {"position": "alibi", "position.factor": (dim // heads) ** -0.5}


def position_keys(values: Values) -> dict:
    """The keys of positions."""
    alibi = values["position.name"] == "alibi"
    return {"alibi": alibi, **({} if alibi else {"rope_parameters": rope_node(values)})}


def two_norms(*names: str) -> tuple[Weight, ...]:
    """The norms of parallel sublayers that have one each."""
    norm = f"{HERE}.placement.attn_ffn.norm"
    return tuple(
        Weight((f"{LAYER}.ln_attn.{n}", f"{LAYER}.ln_mlp.{n}"), (f"{norm}.0.{n}", f"{norm}.1.{n}"))
        for n in names
    )


FAMILY = Family(
    preset="falcon",
    architectures=("FalconForCausalLM",),
    keys=(
        Key("vocab_size", "model.vocab_size"),
        Key("hidden_size", "model.dim", also=("n_embed",)),
        Key("num_hidden_layers", "model.layers", also=("n_layer",)),
        Key("num_attention_heads", "attn.heads", also=("n_head",)),
        length(2048),
        Key("ffn_hidden_size", "ffn.width", None),
        activation("activation", "gelu"),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Key("bias", "attn.bias", False),
        Functions(("bias",), lambda config: {"ffn.bias": config.get("bias", False)}),
        Functions(FORM_KEYS, form, form_keys),
        Functions((*ROPE_KEYS, "alibi"), position, position_keys),
        Fixed("apply_residual_connection_post_layernorm", False),
        Fixed("ff_factor", 4),
        tied(True),
    ),
    weights=(
        Weight("transformer.word_embeddings.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("transformer.ln_f", "decoder.norm"),
        *two_norms("weight", "bias"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn_ffn.norm.0"),
        *fused(f"{LAYER}.self_attention.query_key_value", QKV, PER_HEAD),
        *linear(f"{LAYER}.self_attention.dense", f"{HERE}.attn.o"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.ffn.norm.0"),
        *fully_connected(f"{LAYER}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    prefix="transformer.",
    tied=(("lm_head.weight", "transformer.word_embeddings.weight"),),
)
