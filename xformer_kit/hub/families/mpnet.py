"""MPNet (Song et al., 2020, arXiv:2004.09297): BERT without segments, with learned positions and
biases of distances from one table.
"""

from xformer_kit.hub.common import activation, sizes
from xformer_kit.hub.families.bert import UNUSED, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Key
from xformer_kit.hub.weights import Weight, linear

HERE, LAYER = "encoder.{i}", "mpnet.encoder.layer.{i}"
FIRST = 2  # the row of the first position, as the number of the padding token is 1
MAPS = {
    **{f"attn.{name}": f"attention.attn.{name}" for name in "qkvo"},
    "placement.attn.norm": "attention.LayerNorm",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
    "placement.ffn.norm": "output.LayerNorm",
}
FAMILY = Family(
    preset="mpnet",
    architectures=("MPNetForMaskedLM",),
    keys=(
        *sizes(),
        Key("intermediate_size", "ffn.width"),
        activation("hidden_act", "gelu"),
        Key("layer_norm_eps", "norm.eps", 1e-12),
        Key(
            "max_position_embeddings",
            "model.max_len",
            512,
            to_ours=lambda rows: rows - FIRST,
            to_theirs=lambda length: length + FIRST,
        ),
        Fixed("relative_attention_num_buckets", 32),  # which the code assumes
        Fixed("tie_word_embeddings", True),
    ),
    weights=(
        Weight("mpnet.embeddings.word_embeddings.weight", "embed.weight"),
        Weight("mpnet.embeddings.position_embeddings.weight", "encoder.position.base.weight"),
        Weight("mpnet.encoder.relative_attention_bias.weight", "encoder.position.other_1.weight"),
        *linear("mpnet.embeddings.LayerNorm", "encoder.embed_norm"),
        *(w for our, own in MAPS.items() for w in linear(f"{LAYER}.{own}", f"{HERE}.{our}")),
        *head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    ),
    prefix="mpnet.",
    unused=UNUSED,
    tied=(
        ("lm_head.decoder.weight", "mpnet.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
)
