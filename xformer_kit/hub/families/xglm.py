"""XGLM (Lin et al., 2021, arXiv:2112.10668)."""

from xformer_kit.hub.common import (
    LAYER,
    activation,
    fully_connected,
    length,
    projections,
    sizes,
    unread,
)
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.stacks import scale_embedding
from xformer_kit.hub.weights import Weight, linear

HERE = "decoder.{i}"
PADDING, OFFSET = "pad_token_id", 2


def padding(config: Values) -> dict:
    """The padding token, whose row of the table of sinusoids is 0."""
    token = config.get(PADDING)
    if token is not None and token >= OFFSET:
        rule = "must be 0 or 1, whose rows of sinusoids, which are 0, are not read"
        raise refuse(PADDING, token, rule)
    return {}


FAMILY = Family(
    preset="xglm",
    architectures=("XGLMForCausalLM",),
    keys=(
        *sizes("d_model", "num_layers", "attention_heads"),
        length(2048),
        Key("ffn_dim", "ffn.width"),
        activation("activation_function", "gelu"),
        scale_embedding(True),
        Functions((PADDING,), padding),
        Fixed("add_cross_attention", False),
        Fixed("tie_word_embeddings", True),
        unread("layerdrop"),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        *linear("model.layer_norm", "decoder.norm"),
        *linear(f"{LAYER}.self_attn_layer_norm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.final_layer_norm", f"{HERE}.placement.ffn.norm.0"),
        *projections(f"{LAYER}.self_attn", out="out_proj"),
        *fully_connected(LAYER, "fc1", "fc2"),
    ),
    unused=("model.embed_positions.weights",),
    tied=(("lm_head.weight", "model.embed_tokens.weight"),),
)
