"""Gemma 2 (Gemma Team, 2024, arXiv:2408.00118)."""

from xformer_kit.hub.common import (
    HEAD_IS_EMBEDDING,
    KINDS,
    LAYER,
    LOCAL,
    activation,
    decoder_keys,
    gated_ffn,
    layer_types,
    projections,
    unread,
)
from xformer_kit.hub.families.gemma3_text import GEMMA_NORMS, QUERY_SCALE
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Entry, Fixed, Key, Values
from xformer_kit.hub.weights import Weight


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    layers = range(config["num_hidden_layers"])
    return ["full_attention" if at % 2 else "sliding_attention" for at in layers]


GEMMA2_KEYS: tuple[Entry, ...] = (
    *decoder_keys(
        kv_heads=4,
        head_dim=256,
        activated=activation("hidden_activation", "gelu_pytorch_tanh"),
        positions=8192,
        tie=True,
    ),
    QUERY_SCALE,
    Key("attention_bias", "attn.bias", False),
    Key("attn_logit_softcapping", "attn.score.softcap", 50.0),
    Key("final_logit_softcapping", "model.logit_softcap", 30.0),
    Key("sliding_window", f"{LOCAL}.mask.window", 4096),
    layer_types(KINDS, kinds),
)
FAMILY = Family(
    preset="gemma2",
    architectures=("Gemma2ForCausalLM",),
    keys=(
        *GEMMA2_KEYS,
        Fixed("use_bidirectional_attention", None, False),
        unread("hidden_act", "sliding_window_size"),
    ),
    weights=(
        Weight("model.embed_tokens.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *GEMMA_NORMS,
        *projections(f"{LAYER}.self_attn"),
        *gated_ffn(f"{LAYER}.mlp"),
    ),
    tied=HEAD_IS_EMBEDDING,
)
