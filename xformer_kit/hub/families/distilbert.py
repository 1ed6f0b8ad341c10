"""DistilBERT (Sanh et al., 2019, arXiv:1910.01108): BERT without segments."""

from xformer_kit.hub.common import activation, length, sizes
from xformer_kit.hub.families.bert import UNUSED, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Key
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "encoder.{i}", "distilbert.transformer.layer.{i}"
MAPS = {
    "attn.q": "attention.q_lin",
    "attn.k": "attention.k_lin",
    "attn.v": "attention.v_lin",
    "attn.o": "attention.out_lin",
    "placement.attn.norm": "sa_layer_norm",
    "ffn.up": "ffn.lin1",
    "ffn.down": "ffn.lin2",
    "placement.ffn.norm": "output_layer_norm",
}
FAMILY = Family(
    preset="distilbert",
    architectures=("DistilBertForMaskedLM",),
    keys=(
        *sizes("dim", "n_layers", "n_heads"),
        Key("hidden_dim", "ffn.width", 3072),
        activation("activation", "gelu"),
        activation("activation", "gelu", "model.head_activation"),
        length(512),
        Fixed("sinusoidal_pos_embds", False, True),  # the first values of a table in the file
        Fixed("tie_word_embeddings", True),
    ),
    weights=(
        Weight("distilbert.embeddings.word_embeddings.weight", "embed.weight"),
        Weight("distilbert.embeddings.position_embeddings.weight", "encoder.position.base.weight"),
        *linear("distilbert.embeddings.LayerNorm", "encoder.embed_norm"),
        *(w for our, own in MAPS.items() for w in linear(f"{LAYER}.{own}", f"{HERE}.{our}")),
        *head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ),
    prefix="distilbert.",
    unused=UNUSED,
    tied=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
)
