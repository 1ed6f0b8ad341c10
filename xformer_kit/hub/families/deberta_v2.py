"""DeBERTa v2 and v3 (He et al., 2021, arXiv:2006.03654 and arXiv:2111.09543), without the
convolution of the largest v2.
"""

from xformer_kit.hub.common import activation, length, sizes
from xformer_kit.hub.families.bert import UNUSED, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "encoder.{i}", "deberta.encoder.layer.{i}"
MAPS = {
    "attn.q": "attention.self.query_proj",
    "attn.k": "attention.self.key_proj",
    "attn.v": "attention.self.value_proj",
    "attn.o": "attention.output.dense",
    "placement.attn.norm": "attention.output.LayerNorm",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
    "placement.ffn.norm": "output.LayerNorm",
}
TERMS = {"c2p": "position.content_to_position", "p2c": "position.position_to_content"}
POSITION_KEYS = ("position_buckets", "max_relative_positions", "pos_att_type", "norm_rel_ebd")
NEEDED = {  # key: (what can be composed, default)
    "relative_attention": (True, False),
    "position_biased_input": (False, True),
    "share_att_key": (True, False),
}
EPS = 1e-7  # of the norm of the table of distances


def read_position(config: Values) -> dict:
    """The table of distances and the terms of scores."""
    for key, (needed, default) in NEEDED.items():
        if config.get(key, default) != needed:
            raise refuse(key, config.get(key, default), f"must be {str(needed).lower()}")
    terms = config.get("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    buckets, longest = (config.get(key, -1) for key in POSITION_KEYS[:2])
    longest = longest if longest >= 1 else config.get("max_position_embeddings", 512)
    norm = "layer_norm" in config.get("norm_rel_ebd", "none")
    if norm and config.get("layer_norm_eps", EPS) != EPS:
        raise refuse("layer_norm_eps", config["layer_norm_eps"], f"must be {EPS} with norm_rel_ebd")
    return {
        "position.buckets": buckets if buckets > 0 else longest,
        "position.longest": longest if buckets > 0 else None,
        "position.norm": norm,
        **{ours: name in terms for name, ours in TERMS.items()},
    }


def write_position(values: Values) -> dict:
    """The same."""
    buckets, longest = values["position.buckets"], values["position.longest"]
    return {
        **{key: needed for key, (needed, _) in NEEDED.items()},
        "position_buckets": -1 if longest is None else buckets,
        "max_relative_positions": buckets if longest is None else longest,
        "pos_att_type": [name for name, ours in TERMS.items() if values[ours]],
        "norm_rel_ebd": "layer_norm" if values["position.norm"] else "none",
    }


def same_width(config: Values) -> dict:
    """Embeddings as wide as the layers: else the norm would be after a map without bias."""
    width = config.get("embedding_size")
    if width not in (None, config.get("hidden_size")):
        raise refuse("embedding_size", width, "must be hidden_size")
    return {}


FAMILY = Family(
    preset="deberta_v2",
    architectures=("DebertaV2ForMaskedLM",),
    keys=(
        *sizes(),
        Key("intermediate_size", "ffn.width"),
        Key("attention_head_size", "attn.head_dim", None),
        activation("hidden_act", "gelu"),
        activation("hidden_act", "gelu", "model.head_activation"),
        Key("type_vocab_size", "model.token_types", 0),
        Key("layer_norm_eps", "norm.eps", EPS),
        length(512),
        Functions((*POSITION_KEYS, *NEEDED), read_position, write_position),
        Functions(("embedding_size",), same_width),
        Fixed("conv_kernel_size", 0),
        Fixed("tie_word_embeddings", True),
        Fixed("legacy", True, False),  # two names of one head
    ),
    weights=(
        Weight("deberta.embeddings.word_embeddings.weight", "embed.weight"),
        Weight("deberta.embeddings.token_type_embeddings.weight", "token_type.weight"),
        *linear("deberta.embeddings.LayerNorm", "encoder.embed_norm"),
        Weight("deberta.encoder.rel_embeddings.weight", "encoder.position.base.weight"),
        *linear("deberta.encoder.LayerNorm", "encoder.position.base.norm"),
        *(w for our, own in MAPS.items() for w in linear(f"{LAYER}.{own}", f"{HERE}.{our}")),
        *head(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
        ),
    ),
    prefix="deberta.",
    unused=(*UNUSED, "mask_predictions.*", "deberta.embeddings.position_embeddings.weight"),
    tied=(
        ("cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
    renamed=(
        ("cls.predictions.transform", "lm_predictions.lm_head"),
        ("cls.predictions", "lm_predictions.lm_head"),
    ),
)
