"""ALBERT (Lan et al., 2020, arXiv:1909.11942): BERT with one layer for all, or one for each of
several groups, and narrower embeddings.
"""

from xformer_kit.hub.common import activation, length
from xformer_kit.hub.families.bert import BERT_KEYS, UNUSED, embeddings, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Functions, Values, found, refuse
from xformer_kit.hub.weights import linear

HERE = "encoder.{i}"
LAYER = "albert.encoder.albert_layer_groups.{i}.albert_layers.0"
MAPS = {
    "attn.q": "attention.query",
    "attn.k": "attention.key",
    "attn.v": "attention.value",
    "attn.o": "attention.dense",
    "placement.attn.norm": "attention.LayerNorm",
    "ffn.up": "ffn",
    "ffn.down": "ffn_output",
    "placement.ffn.norm": "full_layer_layer_norm",
}


def read_embedding(config: Values) -> dict:
    """The channels of the embeddings, which a map leads to those of the layers."""
    channels = found(config, ("embedding_size",), 128)
    if channels == config.get("hidden_size"):
        raise refuse("embedding_size", channels, "must differ from hidden_size")
    return {"model.embed_dim": channels}


def read_groups(config: Values) -> dict:
    """The layers with weights of their own."""
    groups = found(config, ("num_hidden_groups",), 1)
    layers = config.get("num_hidden_layers", groups)
    return {"model.unique_layers": None if groups == layers else groups}


def write_groups(values: Values) -> dict:
    """The same."""
    layers = values["model.encoder.layers"]
    return {"num_hidden_groups": values["model.unique_layers"] or layers}


FAMILY = Family(
    preset="albert",
    architectures=("AlbertForMaskedLM", "AlbertForPreTraining"),
    keys=(
        *(entry for entry in BERT_KEYS if entry.keys != ("hidden_act",)),
        activation("hidden_act", "gelu_new"),
        activation("hidden_act", "gelu_new", "model.head_activation"),
        length(512),
        Functions(
            ("embedding_size",),
            read_embedding,
            lambda values: {"embedding_size": values["model.embed_dim"]},
        ),
        Functions(("num_hidden_groups",), read_groups, write_groups),
        Fixed("inner_group_num", 1),
        Fixed("down_scale_factor", 1, None),  # of the authors' code, as are the next three
        *(Fixed(key, 0, None) for key in ("gap_size", "net_structure_type", "num_memory_blocks")),
    ),
    weights=(
        *embeddings("albert.embeddings"),
        *linear("albert.encoder.embedding_hidden_mapping_in", "encoder.project"),
        *(w for our, own in MAPS.items() for w in linear(f"{LAYER}.{own}", f"{HERE}.{our}")),
        *head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    ),
    prefix="albert.",
    unused=(*UNUSED, "sop_classifier.*"),
    tied=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
)
