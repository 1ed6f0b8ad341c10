"""OPT (Zhang et al., 2022, arXiv:2205.01068) and Galactica (Taylor et al., 2022,
arXiv:2211.09085).
"""

from xformer_kit.hub.common import (
    activation,
    all_biases,
    fully_connected,
    length,
    projections,
    sizes,
    tied,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.weights import Weight, linear

HERE, BODY, LAYER = "decoder.{i}", "model.decoder", "model.decoder.layers.{i}"
NORM_KEYS = ("do_layer_norm_before", "_remove_final_layer_norm")


def norms(config: Values) -> dict:
    """Norms before the sublayers and after the last, or after each sublayer."""
    before, removed = config.get(NORM_KEYS[0], True), config.get(NORM_KEYS[1], False)
    final = False if before and removed else None
    return {"placement": "pre" if before else "post", "model.final_norm": final}


def norm_keys(values: Values) -> dict:
    """The keys of where norms are."""
    before, final = values["placement.name"] == "pre", values["model.final_norm"]
    return dict(zip(NORM_KEYS, (before, before and final is False), strict=True))


def embed_dim(config: Values) -> dict:
    """Channels of the embeddings, which are mapped to those of the stream."""
    channels, dim = config.get("word_embed_proj_dim"), config["hidden_size"]
    if channels in (None, dim):
        return {"model.embed_dim": None, "model.embed_map_first": False}
    if not config.get("tie_word_embeddings", True):
        raise refuse("word_embed_proj_dim", channels, "needs tie_word_embeddings=true")
    return {"model.embed_dim": channels, "model.embed_map_first": True}


def affine(config: Values) -> dict:
    """Whether norms have weights and biases."""
    has = config.get("layer_norm_elementwise_affine", True)
    return {"norm.weight": has, "norm.bias": has}


FAMILY = Family(
    preset="opt",
    architectures=("OPTForCausalLM", "OPTModel"),
    keys=(
        *sizes(),
        length(2048),
        Key("ffn_dim", "ffn.width"),
        activation("activation_function", "relu"),
        all_biases("enable_bias", True),
        Functions(NORM_KEYS, norms, norm_keys),
        Functions(
            ("layer_norm_elementwise_affine",),
            affine,
            lambda values: {"layer_norm_elementwise_affine": values["norm.weight"]},
        ),
        Functions(
            ("word_embed_proj_dim",),
            embed_dim,
            lambda values: {"word_embed_proj_dim": values["model.embed_dim"]},
        ),
        Fixed("output_projection", True),
        tied(True),
    ),
    weights=(
        Weight(f"{BODY}.embed_tokens.weight", "embed.weight"),
        Weight(f"{BODY}.embed_positions.weight", "decoder.position.base.weight"),
        Weight(f"{BODY}.project_in.weight", "decoder.project.weight"),
        Weight(f"{BODY}.project_out.weight", "head.transform.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear(f"{BODY}.final_layer_norm", "decoder.norm"),
        *linear(f"{LAYER}.self_attn_layer_norm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.self_attn_layer_norm", f"{HERE}.placement.attn.norm"),
        *linear(f"{LAYER}.final_layer_norm", f"{HERE}.placement.ffn.norm.0"),
        *linear(f"{LAYER}.final_layer_norm", f"{HERE}.placement.ffn.norm"),
        *projections(f"{LAYER}.self_attn", out="out_proj"),
        *fully_connected(LAYER, "fc1", "fc2"),
    ),
    tied=(("lm_head.weight", f"{BODY}.embed_tokens.weight"),),
)
