"""GPT-J (Wang and Komatsuzaki, 2021, https://github.com/kingoflolz/mesh-transformer-jax)."""

import math

from xformer_kit.hub.common import activation, fully_connected, length, projections, sizes, tied
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "decoder.{i}", "transformer.h.{i}"


def fraction(config: Values) -> dict:
    """The share of a head's channels that are rotated, from their number."""
    rotated, head_dim = config.get("rotary_dim", 64), config["n_embd"] // config["n_head"]
    if rotated is None:
        raise refuse("rotary_dim", rotated, "must be a number of channels")
    share = rotated / head_dim
    if int(head_dim * share) < rotated:  # rounded down
        share = math.nextafter(share, 2)
    return {"position.fraction": share}


def rotary_dim(values: Values) -> dict:
    """The number of a head's channels that are rotated."""
    return {"rotary_dim": int(values["attn.head_dim"] * values["position.fraction"])}


FAMILY = Family(
    preset="gptj",
    architectures=("GPTJForCausalLM",),
    keys=(
        *sizes("n_embd", "n_layer", "n_head"),
        length(2048, "n_positions"),
        Key("n_inner", "ffn.width", None),
        activation("activation_function", "gelu_new"),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Functions(("rotary_dim",), fraction, rotary_dim),
        tied(False),
        Fixed("rotary", True),
        Fixed("scale_attn_weights", True),
    ),
    weights=(
        Weight("transformer.wte.weight", "embed.weight"),
        *linear("lm_head", "head"),
        *linear("transformer.ln_f", "decoder.norm"),
        *linear(f"{LAYER}.ln_1", f"{HERE}.placement.attn_ffn.norm.0"),
        *projections(f"{LAYER}.attn", out="out_proj"),
        *fully_connected(f"{LAYER}.mlp", "fc_in", "fc_out"),
    ),
    prefix="transformer.",
    unused=("*.attn.bias", "*.attn.masked_bias"),
    tied=(("lm_head.weight", "transformer.wte.weight"),),
)
