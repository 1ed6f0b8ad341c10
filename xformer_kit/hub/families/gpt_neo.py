"""GPT-Neo (Black et al., 2021, https://doi.org/10.5281/zenodo.5297715)."""

from xformer_kit.hub.common import (
    activation,
    fully_connected,
    length,
    pattern_options,
    projections,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values, unsupported
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "decoder.{i}", "transformer.h.{i}"
WINDOW = "local.mask.window"
KINDS = {"global": "base", "local": "local"}


def pattern(config: Values) -> dict:
    """The kind of each layer, from a list of (kinds, how often they are repeated)."""
    types = config.get("attention_types") or [[["global", "local"], 12]]
    kinds = [kind for kinds, times in types for kind in kinds * times]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unsupported("attention_types", unknown[0], KINDS)
    window = config.get("window_size", 256)
    return pattern_options([KINDS[kind] for kind in kinds], {WINDOW: window})


def attention_types(values: Values) -> dict:
    """The kinds of all layers, once, and the window."""
    theirs = {own: kind for kind, own in KINDS.items()}
    kinds = [theirs[variant] for variant in values["model.decoder.order"]]
    window = values.get(f"model.decoder.variants.{WINDOW}", 256)
    return {
        "attention_types": [[kinds, 1]],
        "attention_layers": kinds,
        "window_size": window,
    }


FAMILY = Family(
    preset="gpt_neo",
    architectures=("GPTNeoForCausalLM",),
    keys=(
        *sizes("hidden_size", "num_layers", "num_heads"),
        length(2048),
        Key("intermediate_size", "ffn.width", None),
        activation("activation_function", "gelu_new"),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Functions(("attention_types", "attention_layers", "window_size"), pattern, attention_types),
        tied(True),
    ),
    weights=(
        Weight("transformer.wte.weight", "embed.weight"),
        Weight("transformer.wpe.weight", "decoder.position.base.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("transformer.ln_f", "decoder.norm"),
        *linear(f"{LAYER}.ln_1", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.ln_2", f"{HERE}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.attn.attention", out="out_proj"),
        *fully_connected(f"{LAYER}.mlp", "c_fc", "c_proj"),
    ),
    prefix="transformer.",
    unused=("*.attention.bias", "*.attention.masked_bias"),
    tied=(("lm_head.weight", "transformer.wte.weight"),),
)
