"""MiniCPM3 (Hu et al., 2024, arXiv:2404.06395; with latent attention: the released code)."""

import math

from xformer_kit.hub.common import (
    EMBEDDING_AND_HEAD,
    HEAD_IS_EMBEDDING,
    LAYER,
    PRE_NORMS,
    activation,
    gated_ffn,
    length,
    rope,
    sizes,
    tied,
)
from xformer_kit.hub.families.deepseek_v3 import LATENT_KEYS, LATENT_WEIGHTS, latent_eps
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values

FACTORS = ("scale_depth", "dim_model_base")
DEPTH = 1.4
LATENT = (  # with other defaults than those of DeepSeek
    Key("kv_lora_rank", "attn.kv_rank", 256),
    Key("q_lora_rank", "attn.q_rank", 768),
    Key("qk_nope_head_dim", "attn.head_dim", 64),
    Key("qk_rope_head_dim", "attn.rope_head_dim", 32),
)
OTHERS = tuple(entry for entry in LATENT_KEYS if entry.keys not in [own.keys for own in LATENT])


def v_head_dim(config: Values) -> dict:
    """Channels of a head's values."""
    own = config.get("v_head_dim")
    return {"attn.v_head_dim": own or config["hidden_size"] // config["num_attention_heads"]}


def factors(config: Values) -> dict:
    """Factors on residuals, and on logits: the share of the channels of a narrower model."""
    layers, dim = config["num_hidden_layers"], config["hidden_size"]
    depth, base = config.get(FACTORS[0], DEPTH), config.get(FACTORS[1], 256)
    return {
        "model.residual_multiplier": 1.0 if depth is None else depth / math.sqrt(layers),
        "model.logit_scale": 1.0 if base is None else 1 / (dim / base),
    }


def factor_keys(values: Values) -> dict:
    """The keys of both factors."""
    layers = values["model.decoder.layers"]
    depth = values["model.residual_multiplier"] * math.sqrt(layers)
    near = (depth, math.nextafter(depth, 0), math.nextafter(depth, 9), round(depth, 6))
    exact = [d for d in near if d / math.sqrt(layers) == values["model.residual_multiplier"]]
    base = round(values["model.logit_scale"] * values["model.dim"])
    return dict(zip(FACTORS, (exact[-1] if exact else depth, base), strict=True))


FAMILY = Family(
    preset="minicpm3",
    architectures=("MiniCPM3ForCausalLM",),
    keys=(
        *sizes(),
        length(32_768),
        *LATENT,
        latent_eps(1e-5),
        *(entry for entry in OTHERS if entry.keys != ("v_head_dim",)),
        Functions(
            ("v_head_dim",), v_head_dim, lambda values: {"v_head_dim": values["attn.v_head_dim"]}
        ),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "silu"),
        Key("scale_emb", "model.embed_scale", 12, to_ours=float),
        Functions(FACTORS, factors, factor_keys),
        Fixed("mlp_bias", False),
        rope(),
        tied(True),
    ),
    weights=(*EMBEDDING_AND_HEAD, *PRE_NORMS, *LATENT_WEIGHTS, *gated_ffn(f"{LAYER}.mlp")),
    tied=HEAD_IS_EMBEDDING,
)
